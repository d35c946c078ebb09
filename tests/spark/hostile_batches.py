"""Batches that lie, with checksums that fit; run as a program it decodes many with all array accesses checked.

`python hostile_batches.py SEEDS` is for NUMBA_BOUNDSCHECK=1, which takes effect when kernels are compiled: give it a
NUMBA_CACHE_DIR of its own.
"""

import sys
from random import Random

from decoded import outcome

from skidway.records.batch import HEADER_BYTES, PREFIX_BYTES, read_header, set_crc
from skidway.records.compression import Codec
from skidway.records.record import Record, build_batch

EDGES = (0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def sample(random: Random) -> bytearray:
    records = [
        Record(
            0,
            random.choice((-1, 0, 10**12, 2**62)),
            random.choice((None, b"", b"key", random.randbytes(80))),
            random.choice((None, b"", b"value", random.randbytes(300))),
            [("name", random.choice((None, b"", b"x" * 70)))] * random.choice((0, 0, 1, 3)),
        )
        for _ in range(random.randrange(1, 8))
    ]
    codec = random.choice((Codec.NONE, Codec.NONE, Codec.NONE, *Codec))
    return build_batch(records, base_offset=random.randrange(1000), codec=codec, timestamp_type=random.randrange(2))


def mutate(batch: bytearray, random: Random) -> bytearray:
    """Some bytes changed, more of them in records than in the header; the length and the checksum are right again."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(HEADER_BYTES, len(batch)) if random.random() < 0.8 else random.randrange(21, HEADER_BYTES)
        match random.randrange(5):
            case 0:
                batch[at] ^= 1 << random.randrange(8)
            case 1:
                batch[at] = random.choice(EDGES)
            case 2:
                batch[at : at + 1] = bytes([0xFF] * random.randrange(1, 12))
            case 3 if at >= HEADER_BYTES:
                del batch[at : at + random.randrange(1, 9)]
            case _:
                batch[at:at] = random.randbytes(random.randrange(1, 5))
        if len(batch) <= HEADER_BYTES:
            break
    batch[8:PREFIX_BYTES] = (len(batch) - PREFIX_BYTES).to_bytes(4, "big")
    batch[16] = 2
    set_crc(batch)
    return batch


def hostile(seed: int) -> bytes:
    random = Random(seed)
    good = build_batch([Record(0, 5, b"k", b"v")])
    batch = mutate(sample(random), random)
    header = read_header(batch)
    following = build_batch([Record(0, 5, b"k", b"v")], base_offset=max(header.base_offset, 0) + 2**31)
    return bytes(good) * random.randrange(2) + bytes(batch) + bytes(following) * random.randrange(2)


def main(seeds: int) -> None:
    from numba import njit

    @njit
    def past_the_end(numbers, at):  # type: ignore[no-untyped-def]
        return numbers[at]

    import numpy as np

    try:
        past_the_end(np.zeros(3), 3)
    except IndexError:
        pass
    else:
        raise SystemExit("accesses are not checked: set NUMBA_BOUNDSCHECK=1")
    corrupt = 0
    for seed in range(seeds):
        found = outcome(hostile(seed), "numba")
        corrupt += isinstance(found[1], str)
    print(f"{corrupt} of {seeds} were corrupt")


if __name__ == "__main__":
    main(int(sys.argv[1]))
