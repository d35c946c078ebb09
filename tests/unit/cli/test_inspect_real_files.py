"""`inspect log` on what the broker itself wrote: while it runs, after a crash, after recovery, after a clean stop."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.producer import Producer
from skidway.cli.commands.inspect import app
from skidway.testing import Broker


def inspect(data_dir: Path) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["log", str(data_dir), "--deep", "--json"])
    assert result.exit_code == 0, result.stdout
    return {Path(report["directory"]).name: report for report in json.loads(result.stdout)}


def write(broker: Broker, count: int) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for codec in range(5):
            with Producer(cluster, codec=codec, batch_bytes=2_000) as producer:
                for number in range(count // 5):
                    producer.send("t", b"%d" % number * 20, key=b"k%d" % number)


def records(report: dict[str, Any]) -> int:
    return sum(segment["records"] for segment in report["segments"])


def test_the_brokers_own_files_are_sound_at_every_stage(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        configs = {"segment.bytes": str(1024 * 1024), "index.interval.bytes": "1024"}
        Admin(cluster).create_topic("t", partitions=2, configs=configs)
    write(fresh_broker, 10_000)
    running = inspect(fresh_broker.data_dir)
    assert records(running["t-0"]) + records(running["t-1"]) == 10_000
    assert records(running["__cluster_metadata-0"]) > 0
    fresh_broker.kill()
    assert records(inspect(fresh_broker.data_dir)["t-0"]) == records(running["t-0"])
    fresh_broker.start()
    write(fresh_broker, 10_000)
    fresh_broker.stop()
    stopped = inspect(fresh_broker.data_dir)
    assert records(stopped["t-0"]) + records(stopped["t-1"]) == 20_000
    assert stopped["t-0"]["producers"] == 10, "one producer id for each codec and round"
    assert stopped["t-0"]["findings"] == [], "a clean stop leaves every index written"
    assert sum(segment["index_entries"] for segment in stopped["t-0"]["segments"]) > 20
