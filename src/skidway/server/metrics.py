"""What the shell measures beside its node, and the system of its process, pulled as `broker.metrics` are."""

import os
import resource

from skidway.broker.metrics import Kind, Metric, Sample, Take
from skidway.server.measures import Durations, ShellMeasures

TURNS = Metric("skidway_loop_turns_total", Kind.COUNTER)
TURN_NS = Metric("skidway_loop_busy_nanoseconds_total", Kind.COUNTER)
TURN_NS_MAX = Metric("skidway_loop_longest_turn_nanoseconds", Kind.GAUGE)
JOBS = Metric("skidway_jobs_total", Kind.COUNTER, ("lane",))
JOB_NS = Metric("skidway_jobs_nanoseconds_total", Kind.COUNTER, ("lane",))
JOB_NS_MAX = Metric("skidway_jobs_longest_nanoseconds", Kind.GAUGE, ("lane",))
SYNC_SECONDS = Metric("skidway_sync_seconds", Kind.HISTOGRAM)


CPU = Metric("process_cpu_seconds_total", Kind.COUNTER)
MEMORY = Metric("process_resident_memory_bytes", Kind.GAUGE)
OPEN_FILES = Metric("process_open_fds", Kind.GAUGE)
FILES_MAX = Metric("process_max_fds", Kind.GAUGE)
STARTED = Metric("process_start_time_seconds", Kind.GAUGE)
START_TICKS_FIELD = 19
"""In /proc/self/stat, behind the name of the program."""


def process_samples(take: Take) -> None:
    """As Prometheus' clients call them. Where there is no /proc, only what every system knows."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    take(Sample(CPU, (), round(used.ru_utime + used.ru_stime, 3)))
    take(Sample(FILES_MAX, (), resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    try:
        take(Sample(OPEN_FILES, (), len(os.listdir("/proc/self/fd"))))
        with open("/proc/self/statm", encoding="ascii") as file:
            take(Sample(MEMORY, (), int(file.read().split()[1]) * resource.getpagesize()))
        with open("/proc/self/stat", encoding="utf-8") as file:
            ticks = int(file.read().rpartition(")")[2].split()[START_TICKS_FIELD])
        with open("/proc/stat", encoding="ascii") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime"))
        take(Sample(STARTED, (), round(booted + ticks / os.sysconf("SC_CLK_TCK"), 2)))
    except (OSError, ValueError, IndexError, StopIteration):
        return


def shell_samples(measures: ShellMeasures, take: Take) -> None:
    _durations(measures.turns, (TURNS, TURN_NS, TURN_NS_MAX), (), take)
    for lane, durations in measures.jobs.items():
        _durations(durations, (JOBS, JOB_NS, JOB_NS_MAX), (lane.value,), take)
    take(Sample(SYNC_SECONDS, (), measures.syncs))


def _durations(
    durations: Durations, metrics: tuple[Metric, Metric, Metric], values: tuple[str, ...], take: Take
) -> None:
    numbers = durations.count, durations.total_ns, durations.longest_ns
    for metric, number in zip(metrics, numbers, strict=True):
        take(Sample(metric, values, number))
