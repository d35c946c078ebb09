"""What a task does: one range, from the brokers, as Arrow tables."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from skidway.spark.codec.decoding import Decoder
from skidway.spark.source.fetching import RangeFetch, borrowed
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.planning import LossReport, OffsetRange

ROWS_MAX = 50_000
"""In one table: about what one fetch brings, so that no small one follows a large one."""


def read_range(wanted: OffsetRange, options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(wanted.topic, wanted.partition, columns, kernel=options.kernel, rows_max=ROWS_MAX)
    with borrowed(options.brokers) as cluster:
        fetch = RangeFetch(
            cluster,
            wanted,
            LossReport(options.fail_on_data_loss),
            isolation_level=options.isolation_level,
            fetch_bytes=options.fetch_bytes,
            timeout_ms=options.fetch_timeout_ms,
        )
        for chunk in fetch.chunks():
            yield from decoder.decode(chunk.data, chunk.start, wanted.end, chunk.aborted)
