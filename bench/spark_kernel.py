"""Rows per CPU-second between record batches and Arrow, without Spark: `python -m bench.spark_kernel`.

Values of 100 bytes and keys of 12, checksums verified or written; compiled and plain Python in turns, best of several
rounds of each. CPU time, because the neighbours on a shared machine cost wall time only.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from skidway.records.compression import Codec
from skidway.records.record import Headers, Record, build_batch
from skidway.spark.codec.decoding import COLUMNS, Decoder
from skidway.spark.codec.encoding import Encoder, group_rows, partition_of, stamp_producer
from skidway.spark.codec.runs import HEADERS_TYPE

NOW = 1_700_000_000_000
VALUE_BYTES = 100
PLAIN = COLUMNS[:7]
HEADERS: Headers = (("trace-id", b"0123456789abcdef"), ("source", b"web"))
PYTHON_SHARE = 10
"""Plain Python gets so many times fewer rows: it is that slow."""

Kernel = Literal["numba", "python"]


@dataclass(slots=True)
class Load:
    key: str
    title: str
    columns: Sequence[str] = PLAIN
    codec: int = Codec.NONE
    headers: Headers = ()
    batch_records: int = 1_000


DECODING = [
    Load("decode", "decode, 7 columns"),
    Load("decode-16k", "decode, batches of 16 KB", batch_records=130),
    Load("decode-kv", "decode, key and value", columns=("key", "value")),
    Load("decode-v", "decode, value", columns=("value",)),
    Load("decode-headers", "decode, two headers", columns=COLUMNS, headers=HEADERS),
    Load("decode-lz4", "decode, lz4", codec=Codec.LZ4),
    Load("decode-zstd", "decode, zstd", codec=Codec.ZSTD),
]
ENCODING = [
    Load("encode", "encode"),
    Load("encode-16k", "encode, batches of 16 KB", batch_records=130),
    Load("encode-headers", "encode, two headers", headers=HEADERS),
    Load("encode-lz4", "encode, lz4", codec=Codec.LZ4),
    Load("encode-zstd", "encode, zstd", codec=Codec.ZSTD),
]
ROUTING = Load("route", "partition by key, 12 partitions")
LOADS = [*DECODING, *ENCODING, ROUTING]


def value(random: Random, number: int) -> bytes:
    """Like JSON: half of it repeats, half of it does not."""
    text = f'{{"user":{number % 10_007},"page":"/products/{number % 97}","at":{NOW + number},"id":"'
    return (text + random.randbytes(VALUE_BYTES).hex())[: VALUE_BYTES - 2].encode() + b'"}'


def fetched(load: Load, rows: int) -> bytes:
    random = Random(7)
    data = bytearray()
    for start in range(0, rows, load.batch_records):
        numbers = range(start, min(start + load.batch_records, rows))
        records = [Record(0, NOW + n, b"key-%08d" % n, value(random, n), load.headers) for n in numbers]
        data += build_batch(records, base_offset=start, codec=load.codec)
    return bytes(data)


def decoding(load: Load, rows: int, kernel: Kernel) -> Callable[[], None]:
    data = fetched(load, rows)
    decoder = Decoder("clicks", 0, load.columns, kernel=kernel)

    def decode() -> None:
        assert sum(table.num_rows for table in decoder.decode(data, 0, rows)) == rows

    return decode


def encoding(load: Load, rows: int, kernel: Kernel) -> Callable[[], None]:
    random = Random(7)
    values = pa.array([value(random, number) for number in range(rows)])
    keys = pa.array([b"key-%08d" % number for number in range(rows)])
    pairs = [{"key": name, "value": content} for name, content in load.headers]
    headers = pa.array([pairs] * rows, HEADERS_TYPE) if pairs else None
    batch_bytes = load.batch_records * (VALUE_BYTES + 24)

    def encode() -> None:
        encoder = Encoder(values, keys, headers, kernel=kernel)
        encoded = 0
        for batch in encoder.encode(timestamp_ms=NOW, batch_bytes=batch_bytes, codec=load.codec):
            stamp_producer(batch, 1, 0, encoded)
            encoded += batch.records
        assert encoded == rows

    return encode


def routing(_: Load, rows: int, kernel: Kernel) -> Callable[[], None]:
    keys = pa.array([b"key-%08d" % number for number in range(rows)])

    def route() -> None:
        assert len(group_rows("clicks", partition_of(keys, 12, kernel=kernel))) == 12

    return route


def rate(work: Callable[[], None], rows: int, rounds: int) -> float:
    """Rows per CPU-second, of the best round; the first of them compiles and is not counted."""
    work()
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return rows / best


def measure(rows: int, rounds: int) -> dict[str, tuple[str, float, float]]:
    """By key: title, and rows per CPU-second of the kernel and of plain Python."""
    found = {}
    loads = [(load, decoding) for load in DECODING] + [(load, encoding) for load in ENCODING]
    for load, prepare in [*loads, (ROUTING, routing)]:
        fewer = max(rows // PYTHON_SHARE, 1)
        compiled = rate(prepare(load, rows, "numba"), rows, rounds)
        found[load.key] = (load.title, compiled, rate(prepare(load, fewer, "python"), fewer, 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_kernel", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    table = Table("million rows per CPU-second", "kernel", "Python", "ratio")
    for title, compiled, plain in measure(options.rows, options.rounds).values():
        table.add_row(title, f"{compiled / 1e6:.1f}", f"{plain / 1e6:.2f}", f"{compiled / plain:.0f}×")
    Console().print(table)


if __name__ == "__main__":
    main()
