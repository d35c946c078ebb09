"""One whole run: the machine's limits and every subject's loads, interleaved, several rounds, medians.

Interleaving (limit, A, B, limit, A, B …) is what makes ratios worth something on a machine with noisy neighbours.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import floor, machine
from bench.frames import BenchError
from bench.load import nearest_rank
from bench.subject import Subject, Unavailable, resident_mb
from bench.workloads import KB, MB, Figures, Workload, resident_after_a_gigabyte, workloads

Say = Callable[[str], None]
# Deleted topics' files go after a second; a latency measured while gigabytes are unlinked says nothing.
QUIET_S = 1.5


@dataclass(slots=True)
class Outcome:
    """Medians over the rounds, by subject and load; the subject "machine" has the limits."""

    figures: dict[str, dict[str, Figures]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0

    def get(self, subject: str, load: str, figure: str) -> float | None:
        return self.figures.get(subject, {}).get(load, {}).get(figure)

    def add(self, other: "Outcome") -> None:
        """What another part of the run found."""
        for subject, loads in other.figures.items():
            self.figures.setdefault(subject, {}).update(loads)
        self.notes += other.notes
        self.rounds = self.rounds or other.rounds
        self.seconds += other.seconds


class Samples:
    """Figures of every round."""

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, list[Figures]]] = {}

    def add(self, subject: str, load: str, figures: Figures) -> None:
        self.taken.setdefault(subject, {}).setdefault(load, []).append(figures)

    def medians(self) -> dict[str, dict[str, Figures]]:
        return {
            subject: {
                load: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
                for load, rounds in loads.items()
            }
            for subject, loads in self.taken.items()
        }


def limits(seconds: float) -> dict[str, Figures]:
    """The machine's own figures, under the same names as the brokers'."""
    found: dict[str, Figures] = {}
    for load, measure, size in (
        ("receive16", machine.receive_limit, 16 * KB),
        ("receive128", machine.receive_limit, 128 * KB),
        ("send1", machine.send_limit, MB),
        ("send50", machine.send_limit, 50 * MB),
        ("serve1", floor.serve_limit, MB),
        ("serve50", floor.serve_limit, 50 * MB),
    ):
        if load.startswith("receive"):
            machine.warm()
        limit = measure(size, seconds)
        found[load] = {"mb": limit.mb_per_s, "cpu_gb": limit.cpu_s_per_gb}
    taken = sorted(machine.sync_latencies(seconds * 1.5))
    found["sync"] = {name: nearest_rank(taken, at) for name, at in (("p50", 50), ("p99", 99), ("p999", 99.9))}
    return found


def measure_startups(subject: Subject, times: int) -> list[float]:
    """Seconds from the start of the process to its first Metadata answer, each time with an empty data directory."""
    taken = []
    for _ in range(times):
        with subject:
            taken.append(subject.startup_s)
    return taken


def run(subjects: list[tuple[Subject, int]], *, rounds: int, chosen: set[str], seconds_max: float, say: Say) -> Outcome:
    """Subjects come with the number of warm-up rounds they need: a JVM is slow until its hot code is compiled."""
    began = time.monotonic()
    outcome, samples = Outcome(), Samples()
    loads = [one for one in workloads() if not chosen or one.key in chosen]
    _look_around(outcome)
    with contextlib.ExitStack() as stack:
        ready = []
        for subject, warm_ups in subjects:
            try:
                _open(stack, subject, warm_ups, loads, samples, say)
                ready.append(subject)
            except Unavailable as reason:
                outcome.notes.append(str(reason))
                say(str(reason))
            except (BenchError, OSError) as problem:
                outcome.notes.append(f"FAILED {subject.name}: {problem}")
                say(outcome.notes[-1])
        longest = 0.0
        for number in range(rounds if ready else 0):
            start = time.monotonic()
            if start + longest > began + seconds_max:
                outcome.notes.append(
                    f"ended after {number} of {rounds} rounds: the next would pass {seconds_max:.0f} s"
                )
                break
            _round(ready, loads, samples, outcome, say, f"round {number + 1} of {rounds}")
            outcome.rounds += 1
            longest = max(longest, time.monotonic() - start)
        for subject in filter(Subject.running, ready):
            samples.add(subject.name, "memory_end", {"rss": resident_mb(subject.pid)})
    outcome.figures = samples.medians()
    outcome.seconds = time.monotonic() - began
    return outcome


def _look_around(outcome: Outcome) -> None:
    """Say what makes this machine a bad place to measure."""
    if machine.unsynced_folder():
        outcome.notes.append("temporary files are in memory here: figures with flush=sync mean nothing")
    load = os.getloadavg()[0]
    if load > 0.5 * (os.cpu_count() or 1):
        # Kafka's many threads then win a larger share of the cores than one process with one loop can.
        outcome.notes.append(f"the machine was busy before the run (load {load:.1f}): trust only CPU per GB and memory")


def _round(
    ready: list[Subject], loads: list[Workload], samples: Samples, outcome: Outcome, say: Say, where: str
) -> None:
    say(f"{where}: the machine's limits")
    for limit, figures in limits(0.6).items():
        samples.add("machine", limit, figures)
    time.sleep(QUIET_S)
    for place, load in enumerate(loads):
        # Now one goes first, now the other, so that none always follows the same neighbour.
        first = (place + outcome.rounds) % 2
        for subject in ready[first:] + ready[:first]:
            if load.kafka or subject.name != "kafka":
                _measure(subject, load, samples, outcome, say, where)


def _open(
    stack: contextlib.ExitStack, subject: Subject, warm_ups: int, loads: list[Workload], samples: Samples, say: Say
) -> None:
    say(f"{subject.name}: start-up")
    for taken in measure_startups(subject, 2):
        samples.add(subject.name, "startup", {"s": taken})
    stack.enter_context(subject)
    samples.add(subject.name, "startup", {"s": subject.startup_s})
    samples.add(subject.name, "memory_start", {"rss": resident_mb(subject.pid)})
    say(f"{subject.name}: memory after a gigabyte in and out")
    samples.add(subject.name, "memory", {"rss": resident_after_a_gigabyte(subject)})
    for number in range(warm_ups):
        say(f"{subject.name}: warm-up {number + 1} of {warm_ups}")
        for load in loads:
            if load.flush == "os" and (load.kafka or subject.name != "kafka"):
                load.run(subject, load.seconds)


def _measure(subject: Subject, load: Workload, samples: Samples, outcome: Outcome, say: Say, where: str) -> None:
    if not subject.running():
        return
    say(f"{where}: {subject.name}: {load.title}")
    if load.writes:
        machine.warm()
    try:
        samples.add(subject.name, load.key, load.run(subject, load.seconds))
    except (BenchError, OSError) as problem:
        # A failed load has no figures; it must be seen, and the other loads still be measured.
        outcome.notes.append(f"FAILED {subject.name}: {load.title}: {problem}")
        if not subject.running():
            outcome.notes[-1] += f"; the broker is gone:{subject.last_words()}"
        say(outcome.notes[-1])
