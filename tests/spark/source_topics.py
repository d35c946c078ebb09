"""For tests of the source: a topic of its own with known records, and readers without Spark."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.producer import Producer
from skidway.records.record import Headers
from skidway.spark.codec.decoding import COLUMNS
from skidway.spark.source.batch import plan_batch
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.reading import read_range


class Sent(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_700_000_000_000
    headers: Headers = ()


def make_topic(cluster: Cluster, partitions: int = 1, name: str = "source", **configs: str) -> str:
    """Its records are of 2023, and stay."""
    topic = f"{name}-{secrets.token_hex(4)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    Admin(cluster).create_topic(topic, partitions=partitions, configs={"retention.ms": "-1", **settings})
    return topic


def send(cluster: Cluster, topic: str, records: Iterable[Sent], *, codec: int = 0, batch_bytes: int = 4096) -> None:
    with Producer(cluster, codec=codec, batch_bytes=batch_bytes) as producer:
        for record in records:
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )


def numbered(count: int, partitions: int = 1, first: int = 0) -> list[Sent]:
    """`count` records, one partition after the other in turn, whose values are their numbers."""
    return [
        Sent(number % partitions, b"k%d" % number, b"%d" % number, 1_700_000_000_000 + number)
        for number in range(first, first + count)
    ]


def batch_options(bootstrap: str, topic: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **more})


def read_rows(options: SourceOptions, columns: Iterable[str] = COLUMNS) -> list[dict[str, Any]]:
    """A batch read as Spark does it, in this process."""
    tables: list[pa.RecordBatch] = []
    for wanted in plan_batch(options):
        tables += read_range(wanted, options, tuple(columns))
    return [row for table in tables for row in table.to_pylist()]


def values(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    return sorted((bytes(row["value"]) for row in rows), key=lambda value: (len(value), value))
