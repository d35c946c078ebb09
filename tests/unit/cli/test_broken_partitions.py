"""A topic with a healthy partition, one whose records are damaged, and one that the broker quarantined: commands show
what there is, name what they leave out, and do not wait for what will not come."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.producer import Producer
from skidway.cli.commands import cluster, consume, dlq, group, topic
from skidway.testing import Broker

APPS = {"topic": topic.app, "consume": consume.app, "group": group.app, "dlq": dlq.app, "cluster": cluster.app}
HEALTHY, DAMAGED, QUARANTINED = 0, 1, 2


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap of a broker with the topic orders-dlq, two batches in each partition, and the group billing."""
    data = tmp_path_factory.mktemp("data")
    with Broker(data_dir=data, flush="os") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("orders-dlq", partitions=3)
            for value in (b"first", b"second"):
                with Producer(cluster) as producer:
                    for partition in range(3):
                        producer.send("orders-dlq", value, partition=partition)
            Groups(cluster).commit("billing", {("orders-dlq", partition): 1 for partition in range(3)})
        broker.stop()
        spoil_the_second_batch(data / f"orders-dlq-{DAMAGED}")
        broker.start()
        broker.kill()
        for log in (data / f"orders-dlq-{QUARANTINED}").glob("*.log"):
            log.write_bytes(log.read_bytes()[:40])
        broker.start()
        assert f"quarantined: the broker neither serves nor truncates it: orders-dlq-{QUARANTINED}" in broker.output
        yield broker.bootstrap


def spoil_the_second_batch(partition: Path) -> None:
    (log,) = partition.glob("*.log")
    stored = bytearray(log.read_bytes())
    stored[-1] ^= 0xFF
    log.write_bytes(stored)


@pytest.fixture(autouse=True)
def bootstrap(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", broken)


def run(command: str, *words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(APPS[command], list(words))
    assert result.exit_code == code, result.output
    return result


def assert_both_are_named(stderr: str) -> None:
    assert f"orders-dlq partition {DAMAGED}" in stderr
    assert "damaged records: bad checksum in the batch at offset 1" in stderr
    assert f"orders-dlq partition {QUARANTINED}" in stderr
    assert "no leader; it is offline or quarantined" in stderr


def test_consume_prints_what_can_be_read_and_fails(broken: str) -> None:
    ended = run("consume", "orders-dlq", "--offset", code=1)
    assert sorted(ended.stdout.splitlines()) == ["0\t0\tfirst", "0\t1\tsecond", "1\t0\tfirst"]
    assert_both_are_named(ended.stderr)
    assert len(ended.stderr.splitlines()) == 2


def test_consume_of_nothing_but_a_quarantined_partition_is_refused() -> None:
    ended = run("consume", "orders-dlq", "-p", str(QUARANTINED), code=1)
    assert ended.stderr.startswith(f"error: orders-dlq partition {QUARANTINED}: no leader")


def test_a_group_is_described_with_the_rest() -> None:
    ended = run("group", "describe", "billing")
    assert_both_are_named(ended.stderr)
    (described,) = json.loads(run("group", "describe", "billing", "--json").stdout)
    rows: dict[int, dict[str, Any]] = {entry["partition"]: entry for entry in described["partitions"]}
    assert (rows[HEALTHY]["lag"], rows[HEALTHY]["problem"]) == (1, None)
    assert rows[HEALTHY]["behind_s"] > 0
    assert (rows[DAMAGED]["lag"], rows[DAMAGED]["behind_s"]) == (1, None)
    assert (rows[QUARANTINED]["committed"], rows[QUARANTINED]["end"], rows[QUARANTINED]["lag"]) == (1, None, None)
    assert described["lag"] == 2


def test_a_reset_names_the_partition_that_stands_in_its_way() -> None:
    refused = run("group", "reset", "billing", "--to", "latest", "--execute", code=1).stderr
    assert f"orders-dlq partition {QUARANTINED}: no leader" in refused
    assert "nothing was reset, --partition names the others" in refused
    moved = json.loads(run("group", "reset", "billing", "--to", "latest", "-p", "0", "--json").stdout)
    assert [(entry["from"], entry["to"]) for entry in moved["partitions"]] == [(1, 2)]


def test_a_topic_is_described_with_the_sizes_of_the_rest() -> None:
    ended = run("topic", "describe", "orders-dlq")
    assert f"partition {QUARANTINED} is not served and not counted: no leader" in ended.stderr
    (described,) = json.loads(run("topic", "describe", "orders-dlq", "--json").stdout)
    rows = {entry["partition"]: entry for entry in described["partitions"]}
    assert rows[HEALTHY]["bytes"] > 0
    assert (rows[QUARANTINED]["leader"], rows[QUARANTINED]["end_offset"], rows[QUARANTINED]["bytes"]) == (
        -1,
        None,
        None,
    )


def test_dead_letters_are_listed_and_shown_from_the_rest() -> None:
    (listed,) = json.loads(run("dlq", "list", "--json").stdout)
    assert listed["letters"] == 4
    shown = run("dlq", "show", "orders-dlq", code=1)
    assert shown.stdout.count("not a dead letter") == 3
    assert_both_are_named(shown.stderr)


def test_the_health_of_the_cluster_names_the_damage_and_the_way_out() -> None:
    ended = run("cluster", "health", code=2)
    assert "1 partition without a leader" in ended.stdout
    assert "node 1 is up, so the copies there are damaged or behind" in ended.stdout
    assert "accept-loss" in ended.stdout
    assert "start the brokers" not in ended.stdout
