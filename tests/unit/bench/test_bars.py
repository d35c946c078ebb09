"""Bars are judged by what they say: at least or at most, absolute or beside Kafka or beside the machine."""

from pathlib import Path

from bench import report
from bench.bars import Bar
from bench.suite import Outcome

OUTCOME = Outcome(
    figures={
        "skidway": {"p1ks": {"mb": 300.0, "cpu_gb": 2.0}, "startup": {"s": 0.2}},
        "kafka": {"p1ks": {"mb": 100.0, "cpu_gb": 10.0}, "startup": {"s": 3.0}},
        "machine": {"receive16": {"mb": 900.0, "cpu_gb": 0.9}},
    },
    rounds=3,
)


def verdict(bar: Bar) -> str:
    return bar.judge(OUTCOME).verdict


def test_throughput_beside_kafka_wants_at_least() -> None:
    assert verdict(Bar("", "p1ks", "mb", at_least=2, against=("kafka", "p1ks"))) == "pass"
    assert verdict(Bar("", "p1ks", "mb", at_least=4, against=("kafka", "p1ks"))) == "MISS"


def test_cpu_beside_the_limit_wants_at_most() -> None:
    assert verdict(Bar("", "p1ks", "cpu_gb", at_most=2, against=("machine", "receive16"))) == "MISS"
    assert verdict(Bar("", "p1ks", "cpu_gb", at_most=2.3, against=("machine", "receive16"))) == "pass"


def test_a_miss_says_when_the_broker_did_not_get_its_core() -> None:
    starved = Outcome(figures={"skidway": {"tiny": {"requests": 30e3, "cores": 0.4}}})
    judged = Bar("", "tiny", "requests", at_least=60, unit=" k/s", scale=1e3).judge(starved)
    assert (judged.verdict, judged.found) == ("MISS", "30 k/s, on 0.40 cores")


def test_what_was_not_measured_is_neither_passed_nor_missed() -> None:
    assert verdict(Bar("", "tiny", "requests", at_least=60, scale=1e3)) == "not measured"
    assert verdict(Bar("", "p1ks", "mb", at_least=2, against=("kafka", "tiny"))) == "not measured"


def test_the_newest_run_comes_first_in_the_results(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    report.append(Outcome(notes=["the first"]), path)
    report.append(Outcome(notes=["the second"]), path)
    text = path.read_text()
    assert text.count("# Results\n") == 1
    assert text.index("the second") < text.index("the first")
