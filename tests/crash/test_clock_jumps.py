"""The wall clock of a real broker jumps by hours, days and years, forwards and back, while it runs and between runs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from real_load import Ledger, await_true, connect, produce_once, start_offset

from faked_clocks import MISSING, Clock, library
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.offsets import find_offsets
from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.testing import Broker

pytestmark = pytest.mark.skipif(library() is None, reason=MISSING)

HOUR_S = 3600
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S
KEPT, SIZED = "kept", "sized"
QUICK: dict[str, Any] = {
    "flush": "os",
    "checkpoint_ms": 100,
    "retention_check_ms": 100,
    "groups": {"retention_check_ms": 100},
}
PER_SEGMENT = 20
LOOK_S = 0.1
GROUP = "readers"


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


def create(broker: Broker) -> None:
    stamped = {"internal.segment.bytes": "20000", "message.timestamp.type": "LogAppendTime"}
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(KEPT, partitions=1, configs=stamped)
        Admin(cluster).create_topic(SIZED, partitions=1, configs={**stamped, "retention.bytes": "40000"})


def write(connection: Connection, ledger: Ledger, topic: str, count: int) -> None:
    for _ in range(count):
        values = [b"w:%d:%s" % (ledger.count + 1, bytes(900))]
        code, offset = produce_once(connection, topic, 0, values, -1)
        assert code == ErrorCode.NONE
        ledger.acknowledge((topic, 0), offset, values)


def retention_passes(connection: Connection, ledger: Ledger) -> None:
    """Until something was deleted by size that was written only now: so everything has been looked at meanwhile."""
    before = start_offset(connection, SIZED, 0)
    write(connection, ledger, SIZED, 5 * PER_SEGMENT)
    await_true(lambda: start_offset(connection, SIZED, 0) > before, "retention by size")
    ledger.acknowledged.pop((SIZED, 0))


def jump(broker: Broker, clock: Clock, seconds: int, written: Callable[[], None]) -> None:
    """Until the broker stamps batches by it."""
    before = stamps(broker)[-1][1] // 1000
    clock.jump(seconds)

    def has_jumped() -> bool:
        time.sleep(LOOK_S)
        written()
        return abs(stamps(broker)[-1][1] // 1000 - before) > HOUR_S // 2

    await_true(has_jumped, f"a clock that jumped by {seconds} s")


def stamps(broker: Broker) -> list[tuple[int, int]]:
    """(offset, timestamp) of every batch, from the files."""
    found = []
    for path in sorted((broker.data_dir / f"{KEPT}-0").glob("*.log")):
        found += [(header.base_offset, header.max_timestamp) for _, header in iter_headers(path.read_bytes())]
    return found


def test_nothing_is_deleted_by_a_clock_that_jumps_and_is_set_right(clock: Clock) -> None:
    ledger = Ledger()
    revoked: list[object] = []
    with Broker(environment=clock.environment, **QUICK) as broker:
        create(broker)
        member = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "member", "auto.offset.reset": "earliest"}
        )
        member.subscribe([KEPT], on_revoke=lambda consumer, partitions: revoked.extend(partitions))
        with connect(broker) as connection, Cluster(broker.bootstrap) as cluster:
            write(connection, ledger, KEPT, 2 * PER_SEGMENT)
            Groups(cluster).commit(GROUP, {(KEPT, 0): 7})
            await_true(lambda: member.poll(0.1), "a member that reads")
            for seconds in (30 * DAY_S, -3 * HOUR_S, 5 * YEAR_S, 0):
                jump(broker, clock, seconds, lambda: write(connection, ledger, KEPT, 1))
                write(connection, ledger, KEPT, PER_SEGMENT)
                retention_passes(connection, ledger)
                assert start_offset(connection, KEPT, 0) == 0
                assert Groups(cluster).committed(GROUP)[KEPT, 0].offset == 7
                member.poll(0)
            assert "the wall clock jumped forwards by" in broker.output
            told = stamps(broker)
            assert [offset for offset, _ in told] == list(range(len(told)))
            for at in sorted({stamp + shift for _, stamp in told[:: len(told) // 10] for shift in (-1, 0, 1)}):
                first = next((offset for offset, stamp in told if stamp >= at), -1)
                assert find_offsets(cluster, KEPT, {0: at})[0] == first, f"by time {at}"
        ledger.verify(broker)
        assert revoked == [], "sessions do not go by the wall clock"
        member.close()
        for seconds, kill in ((-20 * YEAR_S, True), (0, False)):
            clock.jump(seconds)
            broker.restart(kill=kill)
            ledger.verify(broker)
        assert "Traceback" not in broker.output


def test_a_jump_that_nobody_corrects_is_believed_in_the_end(clock: Clock) -> None:
    """Without the wait everything above would be gone: the same jump deletes records and committed offsets."""
    ledger = Ledger()
    with Broker(environment=clock.environment, limits={"clock_jump_wait_ms": 1}, **QUICK) as broker:
        create(broker)
        with connect(broker) as connection, Cluster(broker.bootstrap) as cluster:
            write(connection, ledger, KEPT, 2 * PER_SEGMENT)
            Groups(cluster).commit(GROUP, {(KEPT, 0): 7})
            clock.jump(30 * DAY_S)
            await_true(lambda: start_offset(connection, KEPT, 0) == 2 * PER_SEGMENT, "retention by the new time")
            await_true(lambda: (KEPT, 0) not in Groups(cluster).committed(GROUP), "the end of committed offsets")
