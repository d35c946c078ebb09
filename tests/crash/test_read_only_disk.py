"""The file system of a running broker turns read-only, as ext4 does when it comes upon an error."""

from pathlib import Path

import pytest
from real_load import Ledger, connect, produce_once

from disk_faults import ext4_volume
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.errors import ErrorCode
from skidway.testing import Broker
from skidway.testing.broker import BrokerFailed

TOPIC = "story"
MEGABYTES = 32
WRITTEN = 50


def write(connection: Connection, ledger: Ledger, acks: int = -1) -> ErrorCode:
    values = [b"w:%d:%s" % (ledger.count + 1, bytes(900))]
    code, offset = produce_once(connection, TOPIC, 0, values, acks)
    if code == ErrorCode.NONE:
        ledger.acknowledge((TOPIC, 0), offset, values)
    return ErrorCode(code)


def test_a_disk_that_turns_read_only_refuses_writes_serves_reads_and_loses_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    with ext4_volume(tmp_path / "volume", MEGABYTES) as volume, Broker(data_dir=volume.path / "data") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, partitions=1, configs={"internal.segment.bytes": "20000"})
        with connect(broker) as connection:
            for _ in range(WRITTEN):
                assert write(connection, ledger) == ErrorCode.NONE
            volume.turn_read_only()
            for acks in (-1, 1, -1):
                assert write(connection, ledger, acks) == ErrorCode.KAFKA_STORAGE_ERROR
            assert ledger.verify(broker) == WRITTEN
            assert "accepts no more writes until a restart" in broker.output, "said before the first refusal was sent"
        assert "Read-only file system" in broker.output
        assert "remove it before the next start" in broker.output, "last-run goes on saying that nothing was lost"
        broker.stop()
        with pytest.raises(BrokerFailed, match="Read-only file system"):
            broker.start()
        volume.repair()
        (broker.data_dir / "last-run").unlink(missing_ok=True)
        broker.start()
        assert ledger.verify(broker) == WRITTEN
        with connect(broker) as connection:
            assert write(connection, ledger) == ErrorCode.NONE
        broker.restart(kill=True)
        assert ledger.verify(broker) == WRITTEN + 1
        assert "Traceback" not in broker.output
        broker.stop()
