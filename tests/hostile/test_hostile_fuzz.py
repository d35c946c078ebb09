"""Random bytes, and valid requests of every API and version with some bytes changed. The seeds are fixed."""

import struct
import sys
from pathlib import Path
from random import Random

import pytest
from attack import METADATA, Peer, create_topic, framed, good_client, provoke, request

from skidway.testing import Broker
from skidway.wire.headers import write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api

sys.path.append(str(Path(__file__).parents[1] / "unit" / "wire"))
from wire_samples import encode, random_message

pytestmark = pytest.mark.xdist_group("hostile-fuzz")
LIMITS = {"partitions_max": 300, "partitions_per_topic_max": 50, "fetch_wait_ms_max": 50}
RESIDENT_MIB_MAX = 400


def served(broker: Broker) -> list[tuple[int, int]]:
    with Peer(broker) as peer:
        keys = peer.call(18, 0).api_keys
    return [(entry.api_key, version) for entry in keys for version in range(entry.min_version, entry.max_version + 1)]


def mutate(data: bytes, random: Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at = random.randrange(len(mutant)) if mutant else 0
        kind = random.randrange(6)
        if kind == 0 and mutant:
            mutant[at] ^= 1 << random.randrange(8)
        elif kind == 1 and mutant:
            mutant[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            mutant[at:at] = random.randbytes(random.randrange(1, 9))
        elif kind == 3:
            del mutant[at : at + random.randrange(1, 9)]
        elif kind == 4:
            size = random.choice((2, 4, 8))
            mutant[at : at + size] = random.choice((0, 1, -1, -2, 2**15 - 1)).to_bytes(size, "big", signed=True)
        else:
            del mutant[at:]
    return bytes(mutant)


def aim(sample: Message, random: Random) -> None:
    """Towards what exists: random names and numbers alone would seldom get past the first check."""
    for field in sample.__fields__:
        value = getattr(sample, field.name)
        if isinstance(value, Message):
            if value is not field.default:
                aim(value, random)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Message):
                    aim(item, random)
        elif random.random() < 0.7:
            if isinstance(value, str):
                setattr(sample, field.name, "a")
            elif isinstance(value, int) and not isinstance(value, bool):
                lowest = 0 if field.kind == "uint16" else -2
                setattr(sample, field.name, max(lowest, random.choice((0, 1, 2, -1, -2))))


def test_random_bytes(broker: Broker) -> None:
    random = Random(20_261_115)
    with good_client(broker, "random bytes, 600 connections", RESIDENT_MIB_MAX):
        for number in range(600):
            data = random.randbytes(random.randrange(1, 2000))
            provoke(broker, framed(data) if number % 2 else data)


@pytest.mark.parametrize("seed", range(3))
def test_mutants_of_every_request(broker: Broker, seed: int) -> None:
    random = Random(seed)
    create_topic(broker, "a", 3)
    targets = [(key, version) for key, version in served(broker) if version in range(*valid_versions(key))]
    with good_client(broker, f"mutants of every API and version, seed {seed}", RESIDENT_MIB_MAX):
        for key, version in targets:
            sample = random_message(api(key).request.message, version, random)
            aim(sample, random)
            body = encode(sample, version)
            whole = write_request_header(key, version, random.randrange(2**31), "fuzz") + body
            for _ in range(3):
                mutant = framed(mutate(whole, random))
                # Two in one go, and a valid one behind: what comes after a mutant must not matter either.
                provoke(broker, mutant + framed(mutate(whole, random)) + request(METADATA, 12, topics=[]))
            provoke(broker, framed(whole))
            provoke(broker, struct.pack(">i", len(whole) + random.randrange(-5, 6)) + whole)


def valid_versions(key: int) -> tuple[int, int]:
    first, last = api(key).versions
    return first, last + 1
