"""A disk that becomes full in the middle of transactions: what was decided stays so, and ends when there is room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import DESCRIBE_PRODUCERS, PRODUCE, UNEXPECTED, Peer, batch_of, create_topic, part_of
from transaction_attack import Place, add, end, find, produce, state, taken

from disk_faults import small_file_system
from skidway.errors import ErrorCode as E
from skidway.testing import Broker
from waiting import eventually

PLACES: list[Place] = [("left", 0), ("right", 0)]
AGAIN = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS)
SHORT = ["commits", "aborts"]
"""Their records still fit where the last page of the coordinator's log has room."""
LONG = ["commits-" + "x" * 5_000, "aborts-" + "x" * 5_000]
"""Theirs do not."""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "volume", 12) as path:
        yield path


def fill(path: Path) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(file, b"x" * 4096)
    except OSError:
        os.close(file)


def write(peer: Peer, topic: str, size: int) -> int:
    data = part_of(PRODUCE, "PartitionProduceData")(0, batch_of(b"y" * size))
    topics = [part_of(PRODUCE, "TopicProduceData")(topic, partition_data=[data])]
    answer = peer.call(PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=topics)
    return int(answer.responses[0].partition_responses[0].error_code)


def fill_up(peer: Peer, topic: str) -> None:
    """Its last page has no room for a marker."""
    for size in (3_000, 1_500, 700, 300, 150, 80, 40, 20, 10, 5, 1):
        while (code := write(peer, topic, size)) == E.NONE:
            pass
        assert code == E.KAFKA_STORAGE_ERROR


def still_open(peer: Peer) -> list[int]:
    asked = [part_of(DESCRIBE_PRODUCERS, "TopicRequest")(topic, [0]) for topic, _ in PLACES]
    topics = peer.call(DESCRIBE_PRODUCERS, 0, topics=asked).topics
    producers = [each for topic in topics for each in topic.partitions[0].active_producers]
    return [each.producer_id for each in producers if each.current_txn_start_offset >= 0]


def test_a_disk_that_is_full_in_the_middle_of_a_commit(volume: Path) -> None:
    with Broker(data_dir=volume / "data", drain_ms=500, transactions={"state_partitions": 1}) as broker:
        for topic, _ in PLACES:
            create_topic(broker, topic, 1, flush="os")
        with Peer(broker, 120.0) as peer:
            find(peer, "nobody")
            producers = {name: taken(peer, name) for name in SHORT + LONG}
            for name, producer in producers.items():
                assert add(peer, name, producer, PLACES) == {E.NONE}
                assert [produce(peer, name, producer, place) for place in PLACES] == [E.NONE, E.NONE]
            fill(volume / "filler")
            for topic, _ in PLACES:
                fill_up(peer, topic)

            def finish(name: str) -> int:
                return end(peer, name, producers[name], name.startswith("commits"))

            assert [finish(name) for name in SHORT] == [E.NONE, E.NONE]
            assert [finish(name) for name in LONG] == [E.NOT_COORDINATOR, E.NOT_COORDINATOR]
            states = [state(peer, name).transaction_state for name in SHORT + LONG]
            assert states == ["PrepareCommit", "PrepareAbort", "Ongoing", "Ongoing"]
            assert len(still_open(peer)) == 2 * len(producers), "nobody has a marker"

            (volume / "filler").unlink()
            for name in LONG:
                assert eventually(lambda name=name: finish(name) not in AGAIN, seconds=60)  # type: ignore[misc]
            for name in producers:
                ended = "CompleteCommit" if name.startswith("commits") else "CompleteAbort"
                eventually(lambda name=name, ended=ended: state(peer, name).transaction_state == ended, seconds=60)  # type: ignore[misc]
                assert finish(name) == E.NONE, "asked again, it has ended so"
            assert still_open(peer) == []
            assert {add(peer, name, producer, PLACES).pop() for name, producer in producers.items()} == {E.NONE}
        assert not UNEXPECTED.findall(broker.output)
