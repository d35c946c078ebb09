"""Exactly once from topic to topic, where commits and time-outs are: each kind of fault once, by value.

One stream: a task is stopped until the transaction of another has timed out, so the batch is refused and its query
started again; the broker is killed when a commit has everything but its decision; the driver is killed there too, and
the one that follows splits the batch otherwise. Kills anywhere else are in `test_faults_short`, many in
`test_faults_matrix`.
"""

import os
import signal
from pathlib import Path

import pytest
from fault_harness import HEADING, TOPIC_ONCE, TRANSACTION_TIMEOUT_MS, Company, Stage

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.transactions import Transactions
from skidway.testing import Broker

pytestmark = pytest.mark.timeout(1200)

TIMEOUT_MS = 20_000
SLOTS = "local[3,20]"


def open_transactions(stage: Stage) -> set[str]:
    with Cluster(stage.bootstrap) as cluster:
        return set(Transactions(cluster).open_beside("anybody"))


def stop_past_the_timeout(stage: Stage) -> None:
    """The second task stands still after the first is prepared, and sleeps until that one's transaction is aborted."""
    with stage.pause_at("late") as pid:
        (prepared,) = open_transactions(stage)
        os.kill(pid, signal.SIGSTOP)
        stage.driver.await_true(lambda: prepared not in open_transactions(stage), f"{prepared} to time out")
    os.kill(pid, signal.SIGCONT)
    stage.driver.await_event("refused", 1)
    refused = next(one["reason"] for one in stage.driver.events() if one["event"] == "refused")
    assert "kafka.transaction.timeout.ms (20000 ms)" in refused
    stage.await_progress(stage.driver, batches=1)


def test_every_row_is_there_once(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "broker", transactions={"timeout_check_ms": 500}) as broker:
        company = Company(tmp_path, broker)
        try:
            with Stage(company, "where commits and time-outs are", [TOPIC_ONCE], SLOTS) as stage:
                (pipeline,) = stage.pipelines
                pipeline.tasks = 2
                stage.await_progress(stage.run(), batches=1)
                pipeline.timeout_ms = TIMEOUT_MS
                stop_past_the_timeout(stage)
                pipeline.timeout_ms = TRANSACTION_TIMEOUT_MS
                with stage.pause_at("marked"):
                    broker.restart(kill=True)
                stage.await_progress(stage.driver, batches=1)
                stage.kill_driver_at("marked")
                pipeline.tasks = 3
                outcome = stage.finish()[TOPIC_ONCE]
        finally:
            company.close()
    print("", HEADING, outcome, sep="\n")
    assert outcome.tally.sent > 1_000
    assert outcome.tally.exactly_once, outcome.tally
