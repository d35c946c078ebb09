"""Each kind of kill once, at pipelines to all targets: tables and an exactly-once topic have every row once, another
topic has every row.

One story for all: the driver dies twice, each pipeline then being before, in the middle of or after the commit of a
batch, and the second time the checkpoints of the tables go with it; then executors are killed, then the broker. Two
pipelines with planted bugs go through the first kill, to show that the count would find duplicates and losses. The long
version is `test_faults_matrix`, where every pipeline dies at every point; without a kill `test_spark_lake` stops each
table between any two steps.
"""

import shutil

import pytest
from fault_harness import HEADING, PLANTED, TABLES, TOPIC, TOPIC_ONCE, Company, Outcome, Stage

from skidway.testing import Broker

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

pytestmark = pytest.mark.timeout(2400)

DEATHS = [
    {
        "parquet": "before",
        "delta": "during",
        "iceberg": "after",
        TOPIC: "during",
        TOPIC_ONCE: "during",
        "naive": "after",
        "forgetful": "before",
    },
    {"parquet": "after", "delta": "after", "iceberg": "after", TOPIC: "before", TOPIC_ONCE: "after"},
]
"""Where each pipeline is when the driver is killed. The second time all tables have a batch that no checkpoint has. A
new driver and its queries take longer than all else here."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("faults")
    with Broker(data_dir=folder / "broker") as broker:
        company = Company(folder, broker)
        try:
            with Stage(company, "each kind once", [*TABLES, TOPIC, TOPIC_ONCE, *PLANTED]) as stage:
                for points in DEATHS:
                    stage.kill_driver_with(points)
                    stage.resting = set(PLANTED)
                    assert [stage.doubled(kind) for kind in TABLES] == [0, 0, 0], f"after the kill at {points}"
                for one in stage.pipelines:
                    if one.kind in TABLES:
                        shutil.rmtree(one.checkpoint)
                driver = stage.run()
                stage.await_progress(driver, batches=1)
                assert driver.kill_workers()
                stage.kills += 1
                stage.await_progress(driver)
                broker.restart(kill=True)
                stage.kills += 1
                stage.await_progress(driver)
                outcomes = stage.finish()
        finally:
            company.close()
    print("", HEADING, *outcomes.values(), sep="\n")
    return outcomes


@pytest.mark.parametrize("kind", [*TABLES, TOPIC_ONCE])
def test_every_row_is_there_once_whatever_was_killed(outcomes: dict[str, Outcome], kind: str) -> None:
    assert outcomes[kind].kills == len(DEATHS) + 2
    assert outcomes[kind].tally.sent > 1_000
    assert outcomes[kind].tally.exactly_once, outcomes[kind].tally


def test_a_topic_has_every_row_whatever_was_killed(outcomes: dict[str, Outcome]) -> None:
    tally = outcomes[TOPIC].tally
    assert (tally.losses, tally.strangers) == (0, 0), tally
    # Killed after rows were stored and before Spark knew: they are written again. Were there none, nothing was killed.
    assert tally.duplicates > 0, tally


def test_the_count_finds_the_duplicates_of_a_pipeline_that_does_not_know_its_batches(
    outcomes: dict[str, Outcome],
) -> None:
    tally = outcomes["naive"].tally
    assert tally.duplicates > 0, tally
    assert not tally.exactly_once


def test_the_count_finds_the_losses_of_a_pipeline_that_remembers_too_early(outcomes: dict[str, Outcome]) -> None:
    tally = outcomes["forgetful"].tally
    assert tally.losses > 0, tally
    assert not tally.exactly_once
