"""What the shell measures beside its node, pulled as `broker.metrics` are."""

from skidway.broker.metrics import Kind, Metric, Sample, Take
from skidway.server.measures import Durations, ShellMeasures

TURNS = Metric("skidway_loop_turns_total", Kind.COUNTER)
TURN_NS = Metric("skidway_loop_busy_nanoseconds_total", Kind.COUNTER)
TURN_NS_MAX = Metric("skidway_loop_longest_turn_nanoseconds", Kind.GAUGE)
JOBS = Metric("skidway_jobs_total", Kind.COUNTER, ("lane",))
JOB_NS = Metric("skidway_jobs_nanoseconds_total", Kind.COUNTER, ("lane",))
JOB_NS_MAX = Metric("skidway_jobs_longest_nanoseconds", Kind.GAUGE, ("lane",))


def shell_samples(measures: ShellMeasures, take: Take) -> None:
    _durations(measures.turns, (TURNS, TURN_NS, TURN_NS_MAX), (), take)
    for lane, durations in measures.jobs.items():
        _durations(durations, (JOBS, JOB_NS, JOB_NS_MAX), (lane.value,), take)


def _durations(
    durations: Durations, metrics: tuple[Metric, Metric, Metric], values: tuple[str, ...], take: Take
) -> None:
    numbers = durations.count, durations.total_ns, durations.longest_ns
    for metric, number in zip(metrics, numbers, strict=True):
        take(Sample(metric, values, number))
