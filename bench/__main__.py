"""`python -m bench [--kafka] [--no-PART …] [--rounds N] [--only KEY …] [--[no-]record]`: measure, record.

Without --kafka: Skidway beside the machine's limits, about two minutes. With it: Apache Kafka takes turns. Then
transactions and share groups, three minutes each. Then three nodes as one cluster, about ten minutes, and the connector
for Spark beside Spark's own ceiling, up to three minutes, where there is Java. `--only` with `transactions`, `shares`,
`cluster`, `failover` or `spark` is one of these parts alone.
"""

import argparse
import dataclasses
import json
import sys
from functools import partial

from rich.console import Console

from bench import cluster, failover, picture, report, share_suite, spark, suite, transaction_suite
from bench.broker import Skidway
from bench.kafka import Kafka, jars
from bench.load import engine
from bench.nodes import end_nodes_when_terminated
from bench.subject import CACHE, ROOT, Subject, Unavailable
from bench.workloads import workloads

PICTURE = ROOT / "bench" / "results.png"
LAST = CACHE / "bench" / "last.json"
SPARK, CLUSTER, FAILOVER, TRANSACTIONS, SHARES = "spark", "cluster", "failover", "transactions", "shares"
SPARK_SECONDS_MAX = 160.0
SPARK_ROUNDS_MORE = 2
"""The JVM goes on compiling for a while."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka in turns with Skidway")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds-max", type=float, help="begin no round that would end later (220; 460 with Kafka)")
    parser.add_argument("--only", nargs="*", default=[], metavar="KEY", help="only these loads (see --list)")
    parser.add_argument("--no-transactions", action="store_true", help="leave out the loads of transactions")
    parser.add_argument("--no-shares", action="store_true", help="leave out the loads of share groups")
    parser.add_argument("--no-cluster", action="store_true", help="leave out the loads of three nodes")
    parser.add_argument("--no-spark", action="store_true", help="leave out the loads of Spark")
    parser.add_argument("--list", action="store_true", help="print the loads and end")
    parser.add_argument(
        "--record",
        action=argparse.BooleanOptionalAction,
        help="write to RESULTS.md and results.png (unless --only chose some loads)",
    )
    parser.add_argument("--again", action="store_true", help="print and record the last run again, measure nothing")
    return parser.parse_args()


def measure(options: argparse.Namespace, console: Console) -> suite.Outcome:
    chosen = set(options.only)
    if SPARK in chosen:
        chosen = chosen - {SPARK} | set(spark.titles())
    if TRANSACTIONS in chosen:
        chosen = chosen - {TRANSACTIONS} | set(transaction_suite.titles())
    if SHARES in chosen:
        chosen = chosen - {SHARES} | set(share_suite.titles())
    brokers, nodes = {load.key for load in workloads()}, {CLUSTER, FAILOVER, *cluster.titles()}
    parts = set(spark.titles()) | set(transaction_suite.titles()) | set(share_suite.titles())
    if unknown := chosen - brokers - nodes - parts:
        raise SystemExit(f"no such load: {', '.join(sorted(unknown))} (see --list)")
    outcome = suite.Outcome()
    if not chosen or chosen & brokers:
        outcome = measure_brokers(options, chosen & brokers, console)
    for part, is_left_out in ((transaction_suite, options.no_transactions), (share_suite, options.no_shares)):
        wanted = chosen & set(part.titles())
        if not is_left_out and (not chosen or wanted):
            with console.status("starting") as status:
                say = partial(_say, console, status)
                outcome.add(part.run(wanted, kafka=options.kafka, rounds=options.rounds, say=say))
    if not options.no_cluster and (not chosen or chosen & nodes):
        outcome.add(measure_clusters(options, chosen & nodes, console))
    if not options.no_spark and (not chosen or chosen & set(spark.titles())):
        with console.status("starting") as status:
            outcome.add(
                spark.run(
                    chosen & set(spark.titles()),
                    rounds=options.rounds + SPARK_ROUNDS_MORE,
                    seconds_max=SPARK_SECONDS_MAX,
                    say=lambda text: _say(console, status, text),
                )
            )
    LAST.parent.mkdir(parents=True, exist_ok=True)
    LAST.write_text(json.dumps(dataclasses.asdict(outcome)))
    return outcome


def measure_brokers(options: argparse.Namespace, chosen: set[str], console: Console) -> suite.Outcome:
    subjects: list[tuple[Subject, int]] = [(Skidway(), 0)]
    notes = []
    if options.kafka:
        try:
            jars()  # a download must not fall into the measurement
            subjects.append((Kafka(), 1))
        except Unavailable as reason:
            notes.append(str(reason))
    with console.status("starting") as status:
        outcome = suite.run(
            subjects,
            rounds=options.rounds,
            chosen=chosen,
            seconds_max=options.seconds_max or (460.0 if options.kafka else 220.0),
            say=lambda text: _say(console, status, text),
        )
    outcome.notes = notes + outcome.notes
    return outcome


def measure_clusters(options: argparse.Namespace, chosen: set[str], console: Console) -> suite.Outcome:
    outcome = suite.Outcome()
    with console.status("starting") as status:

        def say(text: str) -> None:
            _say(console, status, text)

        if not chosen or chosen - {FAILOVER}:
            outcome.add(cluster.run(chosen - {FAILOVER, CLUSTER}, kafka=options.kafka, say=say))
        if not chosen or FAILOVER in chosen:
            outcome.add(failover.run(set(), kafka=options.kafka, say=say))
    return outcome


def _say(console: Console, status: object, text: str) -> None:
    """A moving line on a terminal; in a log only what begins a stretch of work or went wrong."""
    if console.is_terminal and not text.startswith("FAILED"):
        status.update(text)  # type: ignore[attr-defined]
    elif not text.startswith("round") or "limits" in text or "FAILED" in text:
        console.print(text)


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    if options.list:
        for load in workloads():
            console.print(f"{load.key:14} {load.title}")
        for key, title in (
            transaction_suite.titles() | share_suite.titles() | cluster.titles() | spark.titles()
        ).items():
            console.print(f"{key:14} {title}")
        return 0
    end_nodes_when_terminated()
    console.print(f"load generator: {engine()}")
    outcome = suite.Outcome(**json.loads(LAST.read_text())) if options.again else measure(options, console)
    report.show(outcome, console)
    measured = {"skidway", "kafka"} & set(outcome.figures)
    if not measured:
        console.print("nothing was measured")
        return 1
    if options.record or (options.record is None and not options.only):
        report.append(outcome)
        # Imported late: matplotlib takes a second.
        from bench import plot

        if ("kafka" in measured and not options.only) or not PICTURE.exists():
            plot.draw(outcome, report.described(), PICTURE)
        picture.write()
        console.print(f"recorded in {report.RESULTS.relative_to(ROOT)}")
    return 1 if any(note.startswith("FAILED") for note in outcome.notes) else 0


if __name__ == "__main__":
    sys.exit(main())
