"""The fault matrix: every kind of kill, again and again, at pipelines to every target (`make chaos`).

The table in docs/reference/spark-faults.md is what this prints. SKIDWAY_SPARK_KILLS says how often each kind strikes.
"""

import os
from collections.abc import Callable, Iterator

import pytest
from fault_harness import HEADING, LOCAL_CLUSTER, TABLES, TOPIC, TOPIC_ONCE, Company, Outcome, Pipeline, Stage

from skidway.testing import Broker

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("SKIDWAY_SPARK_KILLS", "4"))
KILLS_IN_PASSING = 2 * KILLS
"""Of what needs no new driver afterwards."""
TARGETS = [*TABLES, TOPIC, TOPIC_ONCE]


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("faults")
    with Broker(data_dir=folder / "broker") as broker:
        company = Company(folder, broker)
        yield company
        company.close()


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    outcomes: list[Outcome] = []
    yield outcomes
    print("", HEADING, *outcomes, sep="\n")


def judge(stage: Stage, outcomes: list[Outcome]) -> None:
    """To the end, and the count: tables and one topic exactly once, the other topic at least once."""
    found = stage.finish()
    outcomes += found.values()
    print("", *found.values(), sep="\n")
    for kind in (*TABLES, TOPIC_ONCE):
        assert found[kind].tally.exactly_once, found[kind]
    assert (found[TOPIC].tally.losses, found[TOPIC].tally.strangers) == (0, 0), found[TOPIC]


@pytest.mark.parametrize("point", ["before", "during", "after"])
def test_the_driver_dies_at_a_point_of_every_commit(company: Company, outcomes: list[Outcome], point: str) -> None:
    with Stage(company, f"driver, {point} the commit of a batch", TARGETS) as stage:
        for _ in range(KILLS):
            stage.kill_driver_at(point)
            assert [stage.doubled(kind) for kind in TABLES] == [0, 0, 0]
        judge(stage, outcomes)


def unplanned(one: Pipeline) -> Callable[[], bool]:
    """Before Spark has planned a batch: as soon as the query runs."""
    return lambda: True


def under_way(one: Pipeline) -> Callable[[], bool]:
    seen = one.newest("commits")
    return lambda: one.newest("commits") > seen and one.in_a_batch


def done(one: Pipeline) -> Callable[[], bool]:
    seen = one.newest("commits")
    return lambda: one.newest("commits") > seen + 1


@pytest.mark.parametrize(
    ("moment", "about"),
    [
        (unplanned, "driver, as soon as its queries run"),
        (under_way, "driver, offsets/N written and commits/N not"),
        (done, "driver, as commits/N appears"),
    ],
    ids=["unplanned", "under way", "done"],
)
def test_the_driver_dies_when_the_checkpoint_says(
    company: Company, outcomes: list[Outcome], moment: Callable[[Pipeline], Callable[[], bool]], about: str
) -> None:
    with Stage(company, about, TARGETS) as stage:
        for number in range(KILLS):
            watched = stage.pipelines[number % len(stage.pipelines)]
            stage.kill_driver_when(watched, moment(watched), about)
            assert [stage.doubled(kind) for kind in TABLES] == [0, 0, 0]
        judge(stage, outcomes)


def test_the_python_workers_are_killed(company: Company, outcomes: list[Outcome]) -> None:
    with Stage(company, "all Python workers, in a batch", TARGETS) as stage:
        stage.kill_while_running(lambda: stage.driver.kill_workers(), KILLS_IN_PASSING)
        assert stage.kills == KILLS_IN_PASSING
        judge(stage, outcomes)


def test_the_broker_is_killed_and_restarted(company: Company, outcomes: list[Outcome]) -> None:
    def strike() -> int:
        company.broker.restart(kill=True)
        return 1

    with Stage(company, "broker, in a batch, and restarted", TARGETS) as stage:
        stage.kill_while_running(strike, KILLS_IN_PASSING)
        judge(stage, outcomes)


def test_executors_of_a_cluster_are_killed(company: Company, outcomes: list[Outcome]) -> None:
    with Stage(company, "executor JVM, in a batch (local-cluster)", TARGETS, LOCAL_CLUSTER) as stage:
        stage.kill_while_running(lambda: stage.driver.kill_executor(), KILLS_IN_PASSING)
        assert stage.kills == KILLS_IN_PASSING
        judge(stage, outcomes)


def test_the_driver_dies_with_its_mark_written_and_the_next_splits_otherwise(
    company: Company, outcomes: list[Outcome]
) -> None:
    with Stage(company, "driver, mark written and not decided (local-cluster)", [TOPIC_ONCE], LOCAL_CLUSTER) as stage:
        (pipeline,) = stage.pipelines
        for number in range(KILLS):
            pipeline.tasks = 2 + number % 3
            stage.kill_driver_at("marked")
        outcome = stage.finish()[TOPIC_ONCE]
        outcomes.append(outcome)
        assert outcome.tally.exactly_once, outcome


def test_the_broker_is_killed_in_every_commit(company: Company, outcomes: list[Outcome]) -> None:
    with Stage(company, "broker, mark written and not decided", [TOPIC_ONCE]) as stage:
        for _ in range(KILLS_IN_PASSING):
            with stage.pause_at("marked"):
                company.broker.restart(kill=True)
            stage.kills += 1
            stage.await_progress(stage.driver)
        outcome = stage.finish()[TOPIC_ONCE]
        outcomes.append(outcome)
        assert outcome.tally.exactly_once, outcome


def test_the_driver_of_a_cluster_dies_and_its_executors_live_on(company: Company, outcomes: list[Outcome]) -> None:
    about = "driver only, in a batch (local-cluster)"
    with Stage(company, about, TARGETS, LOCAL_CLUSTER) as stage:
        for number in range(KILLS):
            watched = stage.pipelines[number % len(stage.pipelines)]
            stage.kill_driver_when(watched, under_way(watched), about)
        judge(stage, outcomes)
