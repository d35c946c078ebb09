"""What `skidway size` reckons, held against the formulas of the guide by hand."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.cli.commands import size
from skidway.cli.sizing import Load, Machine, Margins, Sizing, size_cluster

DAY_S = 86_400
GB = 1e9
TB = 1e12
ROOMY = Machine(disk_bytes=1_000 * TB, network_bytes_per_s=1_000 * GB)


def sized(machine: Machine = ROOMY, margins: Margins | None = None, **load: Any) -> Sizing:
    given: dict[str, Any] = {"messages_per_s": 10_000, "message_bytes": 1_000, "retention_s": DAY_S, **load}
    return size_cluster(Load(**given), machine, margins or Margins())


def test_little_needs_a_broker_for_each_replica() -> None:
    result = sized(messages_per_s=1)
    assert (result.brokers, result.because, result.partitions) == (3, "replication", 3)
    assert sized(messages_per_s=0).brokers == 3
    assert sized(messages_per_s=1, replication=1, margins=Margins(spare_brokers=0)).brokers == 1


def test_disk() -> None:
    """10 MB/s for a day are 864 GB; three of them, 6 partitions with a segment of 1 GB more each, and indexes."""
    result = sized(Machine(disk_bytes=TB, network_bytes_per_s=1_000 * GB), partitions=6, segment_bytes=10**9)
    assert result.disk_bytes == pytest.approx((864 + 6) * 1e9 * 3 * 1.005)
    assert result.because == "disk"
    assert result.brokers == 4  # 2.62 TB, of which a disk takes 0.7 TB
    assert result.disk_bytes_per_broker == pytest.approx(result.disk_bytes / 4)


def test_what_is_kept_for_a_moment_has_no_room_for_whole_segments() -> None:
    result = sized(retention_s=60, partitions=1_000)
    assert result.disk_bytes == pytest.approx(2 * 10e6 * 60 * 3 * 1.005)


def test_network() -> None:
    """20 MB/s at the busiest time: received three times, sent to two followers and five groups."""
    result = sized(Machine(disk_bytes=1_000 * TB, network_bytes_per_s=0.05 * GB), groups=5)
    assert result.in_bytes_per_s == 20e6
    assert result.needs["network in"] == 3 + 1  # 60 MB/s, 25 for each, one spare
    assert result.needs["network out"] == 6 + 1  # 140 MB/s
    assert (result.brokers, result.because) == (7, "network out")
    assert result.sent_bytes_per_s_per_broker == pytest.approx(20e6)


def test_small_batches_cost_more_than_large_ones() -> None:
    small, large = sized(messages_per_s=1e6, batch_bytes=1_000), sized(messages_per_s=1e6, batch_bytes=1_000_000)
    assert small.because == "cpu"
    assert small.brokers > 5 * large.brokers
    assert large.cpu_per_broker <= 0.5


def test_the_rest_carries_the_load_of_those_that_are_down() -> None:
    lean, safe = (sized(messages_per_s=1e6, margins=Margins(spare_brokers=spare)) for spare in (0, 2))
    assert safe.brokers == lean.brokers + 2


def test_partitions_are_enough_for_the_rate_and_even_over_the_brokers() -> None:
    result = sized(messages_per_s=200_000)
    assert result.partitions >= 400e6 / 10e6
    assert result.partitions % result.brokers == 0
    assert sized(partitions=17).partitions == 17


def test_more_disk_for_more_partitions_for_more_brokers_comes_to_an_end() -> None:
    result = sized(Machine(disk_bytes=2 * GB, network_bytes_per_s=GB))
    assert result.disk_bytes_per_broker <= 0.7 * 2 * GB
    assert result.partitions >= result.brokers


def test_the_command() -> None:
    words = ["-m", "10000", "--bytes", "1000", "--retention", "1d", "--groups", "2", "--disk", "500G", "--gbit", "1"]
    shown = CliRunner().invoke(size.app, words)
    assert shown.exit_code == 0, shown.output
    assert "brokers: because of the room on their disks" in shown.stdout
    document = json.loads(CliRunner().invoke(size.app, [*words, "--json"]).stdout)
    assert document["brokers"] == max(document["needs"].values())
    assert document["in_bytes_per_s"] == 20e6


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--retention", "soon"),
        ("--bytes", "none"),
        ("--batch", "x"),
        ("--disk", "-1"),
        ("--replication", "0"),
        ("--messages", "0"),
        ("--messages", "inf"),
        ("--messages", "nan"),
    ],
)
def test_a_mistake_is_told_with_the_name_of_its_option(option: str, value: str) -> None:
    ended = CliRunner().invoke(size.app, ["-m", "1", option, value], env={"COLUMNS": "200"})
    assert ended.exit_code == 2
    assert re.search(f"Invalid value for [^:]*{option}[^:]*: ", ended.output)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1.5h", 5_400), ("7d", 604_800), ("2W", 1_209_600)]
)
def test_periods(text: str, seconds: float) -> None:
    assert size.parse_period(text) == seconds
