"""A large reply that was made in parts is sent in parts: putting it together would copy all of it in one turn."""

import asyncio
import random
import socket
from collections.abc import Iterator

import pytest

from skidway.limits import KIB, PART_BYTES
from skidway.server.sending import JOINED_BYTES_MAX, Part, PlainSender

PARTS = 40


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        yield ours, theirs


def drain(theirs: socket.socket) -> bytes:
    found = bytearray()
    try:
        while piece := theirs.recv(1 << 20):
            found += piece
    except BlockingIOError:
        pass
    return bytes(found)


@pytest.mark.parametrize("part_bytes", [1 * KIB, 100 * KIB])
def test_many_large_parts_are_queued_as_they_are(pair: tuple[socket.socket, socket.socket], part_bytes: int) -> None:
    ours, theirs = pair
    parts: list[Part] = [random.Random(number).randbytes(part_bytes) for number in range(PARTS)]
    whole = b"".join(bytes(part) for part in parts if isinstance(part, bytes))

    async def story() -> None:
        progress = asyncio.Event()
        sender = PlainSender(asyncio.get_running_loop(), ours.fileno(), progress.set, lambda error: None)
        try:
            sender.send(parts)
            received = drain(theirs)
            waiting_parts = (sender.queued_bytes - (len(whole) - len(received))) // PART_BYTES
            if len(whole) > JOINED_BYTES_MAX:
                assert waiting_parts == PARTS - len(received) // part_bytes
            else:
                assert waiting_parts == 0
            while not sender.is_idle:
                progress.clear()
                await progress.wait()
                received += drain(theirs)
            assert received == whole
        finally:
            sender.close()

    asyncio.run(story())
