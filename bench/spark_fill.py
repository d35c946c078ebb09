"""A topic with the rows that the Spark loads read: written by the sink's own code, without Spark."""

from random import Random

import pyarrow as pa

from bench.frames import BenchError, Peer
from bench.spark_kernel import value
from bench.workloads import KB, MB
from skidway.spark.sink.delivery import AtLeastOnce, Attempt
from skidway.spark.sink.options import SinkOptions

CHUNK_ROWS = 125_000
BATCH_BYTES = 64 * KB
SEGMENT_BYTES = 4 * MB
"""Small, so that most rows are in closed segments."""


def fill(bootstrap: str, topic: str, partitions: int, rows: int) -> None:
    """JSON-like values of 100 bytes and keys of 12, spread by key, in batches of BATCH_BYTES."""
    random = Random(7)
    with Peer(bootstrap) as peer:
        configs = {"flush": "os", "segment.bytes": str(SEGMENT_BYTES)}
        peer.create_topic(topic, partitions, configs)
        values = pa.array([value(random, number) for number in range(CHUNK_ROWS)])
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.batch.size": str(BATCH_BYTES)}
        writing = AtLeastOnce(SinkOptions.parse(options)).begin(Attempt(None, None, 0, 0))
        try:
            for start in range(0, rows, CHUNK_ROWS):
                keys = pa.array([b"key-%08d" % number for number in range(start, start + CHUNK_ROWS)])
                writing.write([pa.record_batch([keys, values], ["key", "value"])])
            writing.prepare()
        finally:
            writing.close()
        present = sum(peer.end_offset(topic, partition) for partition in range(partitions))
    if present != rows:
        raise BenchError(f"{present} of {rows} rows are in the topic")
