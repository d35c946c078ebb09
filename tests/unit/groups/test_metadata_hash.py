"""The hash of a group's topics is the one Apache Kafka 4.3 computes: expected values were read from its records, and
those of the function itself from the library it uses (hash4j 0.22)."""

import pytest

from skidway.groups.consumer.metadata_hash import metadata_hash
from skidway.groups.consumer.xxh3 import xxh3_64

ONE = ("p7e3cdb-a", (bytes.fromhex("ca18c619348540d68dcfa1b8a27410b7"), 2))
TWO = ("p7e3cdb-b", (bytes.fromhex("12e6c7cb8b444aba9bd798f99d926ece"), 1))

# Of bytes i * 7 + i // 256 * 13 + length: each side of every border between the rules for short and long inputs.
HASHES = """
4 57648c318a7a307e  5 239bb6b88222271d  7 4f82be6987f5eea7  8 b0fb3e3c3f94990a  9 8aca5cb309437c2e
12 bb431ec91d8102e8  15 c14e5d6729b9e68c  16 2bd926d88792965a  17 621f018aad19b14a  31 1c80db9a3e8ba043
32 8911535e799e4d99  33 b6d8b523db9b284c  63 392f77fce09e8e01  64 1b1bf114c7371f1b  65 f0037f8ac0441cc4
95 630b3611d3cff0dd  96 cfb21e0d09d8ef29  97 e1415ca7902a74da  127 eece8f95570595f1  128 e9549af9a74093e6
129 b54ad1cd8a4c84b9  143 ffbeca72453b86f9  144 3f50ca07e0dcde52  160 898df912f54aa5c2  239 318817637cd16359
240 3e136902ec966624  241 bd7d29b6ba966d6a  256 ff5a1cefade75bb9  257 ff91d34061444094  320 aaea152c42719f9a
1023 2781dcf37b71e7a5  1024 cbeb9f3a1aeccda2  1025 a786915585c6bf1b  1087 5b40efa83bef1971  1088 4c33e1a280f2f09d
1089 a344cb22ffd300de  2048 8d032ce04bf3e086  2049 25badebdec1ebf98  2113 2b4f3522f29deee0  5000 6fe43fe2374fd109
40031 7649e777b033bff0
"""
KNOWN = HASHES.split()


def unsigned(topics: dict[str, tuple[bytes, int]]) -> str:
    return f"{metadata_hash(topics) & 2**64 - 1:016x}"


def test_it_is_kafka_s() -> None:
    assert unsigned(dict([ONE])) == "3bc6931b71f7d2be"
    assert unsigned(dict([ONE, TWO])) == "fa021786c9dde022"
    assert unsigned(dict([TWO, ONE])) == "fa021786c9dde022", "whatever the order"
    assert metadata_hash(dict([ONE, TWO])) < 0, "as a signed number, for the record"
    assert metadata_hash({}) == 0


def test_it_differs_when_a_topic_does() -> None:
    name, (topic_id, partitions) = ONE
    changed = [
        {name: (topic_id, partitions + 1)},
        {name: (bytes(16), partitions)},
        {name + "x": (topic_id, partitions)},
        dict([ONE, TWO]),
        {},
    ]
    assert len({metadata_hash(topics) for topics in [dict([ONE]), *changed]}) == 6


@pytest.mark.parametrize(("length", "expected"), list(zip(map(int, KNOWN[::2]), KNOWN[1::2], strict=True)))
def test_the_function_itself(length: int, expected: str) -> None:
    data = bytes(index * 7 + index // 256 * 13 + length & 255 for index in range(length))
    assert f"{xxh3_64(data):x}" == expected
