"""How long writes stop when a node of three goes: `python -m bench.failover [--repetitions 20] [--kafka] [--only …]`.

Three producers at a steady pace (see `bench.steady`) while nodes are killed and restarted one after the other; every
event gives one gap per client: the longest time between two acknowledgements. Loads (figures in seconds):
- `fo-leader`      kill -9 of the partition's leader, whatever else it was
- `fo-both`        kill -9 of a node that leads and is the active controller as well
- `fo-controller`  kill -9 of the active controller that does not lead: the gap in metadata changes
- `fo-writes`      the gap in writes at the same time
- `fo-stop`        a clean stop of the leader
- `fo-return`      the node comes back, replicas catch up and join the in-sync set again
A name ending in `-rd` or `-quick` is the gap seen through librdkafka as it comes and with shorter pauses, else through
the raw client. `errors` counts what an
application would have been told, over the whole of a scenario.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from bench.frames import BenchError
from bench.load import nearest_rank
from bench.nodes import KafkaNodes, Nodes, SkidwayNodes, await_true, end_nodes_when_terminated
from bench.steady import Changes, QuickRdkafka, Raw, Rdkafka, Steady
from bench.subject import Unavailable
from bench.suite import Outcome, Say
from bench.workloads import Figures

TOPIC = "bench-failover"
REPETITIONS = 20
QUIET_S = 0.7
"""Of steady acknowledgements before and after each event."""
TITLES = {
    "fo-leader": "kill -9 of the leader",
    "fo-both": "kill -9 of a leader that is the controller too",
    "fo-controller": "kill -9 of the controller: metadata changes",
    "fo-writes": "… and writes meanwhile",
    "fo-stop": "clean stop of the leader (rolling restart)",
    "fo-return": "a node comes back",
}


EVENTS = ("fo-leader", "fo-both", "fo-controller", "fo-stop")
WRITERS: dict[str, type[Steady]] = {"": Raw, "-rd": Rdkafka, "-quick": QuickRdkafka}
"""By what the names of their loads end in."""


def base_of(load: str) -> str:
    return "-".join(load.split("-")[:2])


class Gaps:
    """By load: one gap for each event."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}
        self.errors: dict[str, int] = {}

    def add(self, load: str, gap_s: float) -> None:
        self.taken.setdefault(load, []).append(gap_s)

    def figures(self) -> dict[str, Figures]:
        found: dict[str, Figures] = {}
        for load, gaps in self.taken.items():
            ordered = sorted(gaps)
            found[load] = {"p50": nearest_rank(ordered, 50), "p99": nearest_rank(ordered, 99), "max": ordered[-1]}
            found[load] |= {"times": len(ordered), "errors": self.errors.get(load, 0)}
        return found


class Scenario:
    """Events one after the other under the same steady clients."""

    def __init__(self, nodes: Nodes, gaps: Gaps, say: Say) -> None:
        self.nodes = nodes
        self.gaps = gaps
        self.say = say
        self.changes = Changes(nodes, TOPIC)
        self.writers: dict[str, Steady] = {suffix: kind(nodes, TOPIC) for suffix, kind in WRITERS.items()}
        self.clients: list[Steady] = [*self.writers.values(), self.changes]

    def run(self, event: Callable[[], list[str]], repetitions: int) -> None:
        loads: set[str] = set()
        with ExitStack() as stack:
            for client in self.clients:
                stack.enter_context(client)
            self.settle()
            for number in range(repetitions):
                measured = event()
                loads |= set(measured)
                self.say(f"{self.nodes.name}: {', '.join(measured)} {number + 1} of {repetitions}")
        for load in loads:
            told = self.writers[load[len(base_of(load)) :]]
            self.gaps.errors[load] = self.gaps.errors.get(load, 0) + len(told.errors)
            for error in sorted(set(told.errors))[:3]:
                self.say(f"{self.nodes.name}: {load}: {told.name} was told: {error}")

    def settle(self) -> None:
        """Every client has been acknowledged for a while."""
        self.nodes.await_in_sync(TOPIC)
        for client in self.clients:
            moment = time.monotonic()
            await_true(
                lambda client=client, moment=moment: client.acknowledged_since(moment) > client.rate * QUIET_S / 2,
                f"{client.name} to go on",
            )

    def recovered(self, moment: float) -> float:
        """When all clients have gone on after an event."""
        for client in self.clients:
            await_true(
                lambda client=client: client.acknowledged_since(moment) > client.rate * QUIET_S / 2,
                f"{client.name} to go on",
            )
        return time.monotonic()

    def bring_back(self, number: int) -> list[str]:
        moment = time.monotonic()
        self.nodes.start(number)
        self.settle()
        return self.note("fo-return", moment, time.monotonic())

    def note(self, load: str, since: float, until: float) -> list[str]:
        for suffix, client in self.writers.items():
            self.gaps.add(load + suffix, client.gap_s(since, until))
        return [load + suffix for suffix in self.writers]

    # The events.

    def kill_leader(self) -> list[str]:
        return self._kill(self.nodes.leader(TOPIC), "fo-leader")

    def kill_both(self) -> list[str]:
        controller = self.nodes.controller()
        self.lead_from(controller)
        return self._kill(controller, "fo-both")

    def _kill(self, leader: int, load: str) -> list[str]:
        moment = time.monotonic()
        self.nodes.kill(leader)
        until = self.recovered(moment)
        return self.note(load, moment, until) + self.bring_back(leader)

    def kill_controller(self) -> list[str]:
        controller = self.nodes.controller()
        if self.nodes.leader(TOPIC) == controller:
            self.lead_from(next(number for number in self.nodes.numbers if number != controller))
        moment = time.monotonic()
        self.nodes.kill(controller)
        until = self.recovered(moment)
        self.gaps.add("fo-controller", self.changes.gap_s(moment, until))
        return ["fo-controller", *self.note("fo-writes", moment, until), *self.bring_back(controller)]

    def lead_from(self, number: int) -> None:
        if self.nodes.leader(TOPIC) != number:
            self.nodes.move_leader(TOPIC, number)
            self.settle()

    def stop_leader(self) -> list[str]:
        leader = self.nodes.leader(TOPIC)
        moment = time.monotonic()
        self.nodes.stop(leader)
        until = self.recovered(moment)
        return [*self.note("fo-stop", moment, until), *self.bring_back(leader)]


def measure(nodes: Nodes, repetitions: int, chosen: set[str], say: Say) -> dict[str, Figures]:
    gaps = Gaps()
    with nodes:
        nodes.create_topic(TOPIC, 1)
        for load in EVENTS:
            if chosen and load not in chosen:
                continue
            scenario = Scenario(nodes, gaps, say)
            events = {
                "fo-leader": scenario.kill_leader,
                "fo-both": scenario.kill_both,
                "fo-controller": scenario.kill_controller,
                "fo-stop": scenario.stop_leader,
            }
            scenario.run(events[load], repetitions)
    return gaps.figures()


def run(chosen: set[str], *, repetitions: int = REPETITIONS, kafka: bool = False, say: Say) -> Outcome:
    began = time.monotonic()
    outcome = Outcome()
    subjects: list[tuple[type[Nodes], int]] = [(SkidwayNodes, repetitions)]
    if kafka:
        # Its session timeout is 9 s: fewer repetitions say as much.
        subjects.append((KafkaNodes, max(3, repetitions // 5)))
    for kind, times in subjects:
        try:
            outcome.figures[kind.name] = measure(kind(), times, chosen, say)
        except Unavailable as reason:
            outcome.notes.append(str(reason))
        except (BenchError, OSError) as problem:
            outcome.notes.append(f"FAILED {kind.name}: fail-over: {problem}")
            say(outcome.notes[-1])
    outcome.seconds = time.monotonic() - began
    return outcome


def rows(outcome: Outcome) -> list[list[str]]:
    found = []
    for load, title in TITLES.items():
        for suffix, kind in WRITERS.items():
            row = [title, Changes.name if load == "fo-controller" else kind.name]
            for subject in ("skidway", "kafka"):
                figures = outcome.figures.get(subject, {}).get(load + suffix)
                row.append("–" if figures is None else _described(figures))
            if row[2:] != ["–", "–"]:
                found.append(row)
    return found


def _described(figures: Figures) -> str:
    errors = f", {figures['errors']:.0f} errors" if figures["errors"] else ""
    return (
        f"{figures['p50']:.2f} / {figures['p99']:.2f} / {figures['max']:.2f} s ({figures['times']:.0f} times{errors})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka as well")
    parser.add_argument("--only", nargs="*", default=[], choices=EVENTS)
    options = parser.parse_args()
    end_nodes_when_terminated()
    console = Console(width=None if sys.stdout.isatty() else 150)
    outcome = run(set(options.only), repetitions=options.repetitions, kafka=options.kafka, say=console.print)
    table = Table(
        "event", "client", "Skidway p50 / p99 / max", "Kafka p50 / p99 / max", title="Gap in acknowledgements"
    )
    for row in rows(outcome):
        table.add_row(*row)
    console.print(table)
    for note in outcome.notes:
        console.print(note)
    return 1 if any(note.startswith("FAILED") for note in outcome.notes) else 0


if __name__ == "__main__":
    sys.exit(main())
