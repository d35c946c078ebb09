"""Everything at once, seeded: tight limits, odd pieces, slow readers, file slices, syncs, resets and half-closes."""

import asyncio
import random
import socket
import struct
from pathlib import Path

import pytest
from msgspec.structs import replace
from server_fake_node import Peer, Run, Served, frame_of, serving

from skidway.limits import DEFAULT_LIMITS, KIB
from skidway.server.disk import RealDisk
from skidway.server.sending import SMALL_SLICE_BYTES
from waiting import until

TIGHT = replace(
    DEFAULT_LIMITS,
    inflight_requests_max=3,
    reply_bytes_max=64 * KIB,
    frame_bytes_max=600 * KIB,
    receive_bytes_max=600 * KIB,
)
FILE_BYTES = 400 * KIB


def make_request(rng: random.Random, content: bytes) -> tuple[bytes, bytes]:
    """A request and its answer."""
    match rng.choice("EEEERRFFS"):
        case "E":
            body = b"E" + rng.randbytes(rng.choice((0, 5, 900, 9_000, 30_000, 200_000)))
            return body, body
        case "R":
            size = rng.choice((0, 10, 5_000, 150_000))
            return b"R" + struct.pack(">I", size), bytes(size)
        case "F":
            position = rng.randrange(FILE_BYTES)
            length = rng.choice((0, 1, SMALL_SLICE_BYTES, SMALL_SLICE_BYTES + 1, 100 * KIB))
            length = min(length, FILE_BYTES - position)
            return b"F" + struct.pack(">QI", position, length), content[position : position + length]
        case _:
            return b"S sync", b"S sync"


async def talk(served: Served, rng: random.Random, content: bytes) -> None:
    peer = await served.dial(limit=rng.choice((4 * KIB, 64 * KIB)))
    exchanges = [make_request(rng, content) for _ in range(40)]
    ends_early = rng.random() < 0.3
    stream = b"".join(frame_of(request) for request, _ in exchanges)
    sending = asyncio.create_task(send_in_pieces(peer, stream, rng))
    # A sync's answer may be overtaken in this fake protocol, so answers are compared as a multiset.
    expected = sorted(answer for _, answer in exchanges)
    if ends_early:
        await asyncio.sleep(rng.random() / 20)
        sending.cancel()
        raw = peer.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()
        return
    answers = []
    for _ in exchanges:
        answers.append(await peer.answer())
        if rng.random() < 0.2:
            await asyncio.sleep(0.003)
    assert sorted(answers) == expected
    await sending
    assert await peer.is_dropped(), "the server closes after a half-close"
    await peer.close()


async def send_in_pieces(peer: Peer, stream: bytes, rng: random.Random) -> None:
    position = 0
    while position < len(stream):
        size = rng.choice((1, 3, 700, 8_191, 60_000, 300_000))
        peer.writer.write(stream[position : position + size])
        await peer.writer.drain()
        position += size
        await asyncio.sleep(0)
    peer.writer.write_eof()


@pytest.mark.parametrize("seed", range(4))
def test_everything_at_once(run: Run, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    content = rng.randbytes(FILE_BYTES)
    disk = RealDisk(str(tmp_path))
    disk.open("segment", create=True).append(content)

    async def story() -> None:
        async with serving(TIGHT) as served:
            served.node.file = disk.open("segment")
            await asyncio.gather(*(talk(served, random.Random(rng.random()), content) for _ in range(12)))
            await until(lambda: not served.clients.connected)
            assert served.clients.memory.used_bytes == 0

    run(story())
    disk.close()
