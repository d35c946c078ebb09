"""Stand-in."""

from dataclasses import dataclass
from typing import Any
import numpy as np
from skidway.client.partitioners import partition_of_key
from skidway.records.batch import set_crc
from skidway.records.record import Record, build_batch
import struct


@dataclass(slots=True)
class EncodedBatch:
    buffer: bytearray
    records: int


def _b(v):
    return v.encode() if isinstance(v, str) else v


def encode_batches(
    values: Any, keys: Any, headers: Any, *, timestamp_ms: int, batch_bytes: int, codec: int
) -> list[EncodedBatch]:
    out = []
    cur = []
    size = 0
    ks = keys.to_pylist() if keys is not None else [None] * len(values)
    hs = headers.to_pylist() if headers is not None else [None] * len(values)

    def close():
        if cur:
            out.append(EncodedBatch(bytearray(build_batch(cur, codec=codec)), len(cur)))
            cur.clear()

    for v, k, h in zip(values.to_pylist(), ks, hs):
        v = _b(v)
        k = _b(k)
        h = [(x["key"], x["value"]) for x in h or ()]
        n = 16 + len(v or b"") + len(k or b"")
        if cur and size + n > batch_bytes:
            close()
            size = 0
        cur.append(Record(0, timestamp_ms, k, v, h))
        size += n
    close()
    return out


def stamp_producer(batch: EncodedBatch, producer_id: int, epoch: int, sequence: int) -> None:
    struct.pack_into(">qhi", batch.buffer, 43, producer_id, epoch, sequence)
    set_crc(batch.buffer)


def partition_of(keys: Any, partitions: int) -> Any:
    return np.array(
        [-1 if k is None else partition_of_key(_b(k), partitions) for k in keys.to_pylist()], dtype=np.int32
    )
