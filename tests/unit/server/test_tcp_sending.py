"""Replies out: slow readers, file slices, peers that vanish, and bugs that must stay with their connection."""

import asyncio
import gc
import os
import random
import resource
import socket
import struct
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from server_fake_node import HandClock, Peer, Run, Served, frame_of, is_stuck, serving

from skidway.limits import DEFAULT_LIMITS, KIB, MIB, PART_BYTES
from skidway.ports import File
from skidway.server.clients import REPORTS_PER_SECOND
from skidway.server.disk import RealDisk
from skidway.server.sending import SMALL_SLICE_BYTES
from waiting import until


def slice_request(position: int, length: int) -> bytes:
    return b"F" + struct.pack(">QI", position, length)


def a_file(tmp_path: Path, size: int) -> tuple[RealDisk, bytes]:
    disk = RealDisk(str(tmp_path))
    content = random.Random(3).randbytes(size)
    file = disk.open("segment", create=True)
    file.append(content)
    return disk, content


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def open_files() -> int:
    gc.collect()  # what other tests left behind must not go away in the middle of this one
    return len(os.listdir("/proc/self/fd"))


def test_a_reader_that_never_reads_is_not_read_either(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, reply_bytes_max=2 * MIB)

    async def story() -> None:
        async with serving(limits) as served:
            stubborn, client = await served.raw_dial(4 * KIB)
            other = await served.dial()
            stubborn.setblocking(False)
            requests = frame_of(b"R" + struct.pack(">I", 100 * KIB)) * 10_000  # a gigabyte of replies
            sender = client.sender
            assert sender is not None
            before = resident_bytes()
            sent = stubborn.send(requests[:9_000])
            await until(lambda: sender.queued_bytes > 2 * MIB)
            for _ in range(50):
                try:
                    sent += stubborn.send(requests[sent : sent + 900])
                except BlockingIOError:
                    pass
                # Each answer is a turn of the loop in which the stubborn one could have been read.
                other.ask(b"Eme too")
                assert await other.answer() == b"Eme too"
            assert 2 * MIB < sender.queued_bytes < 5 * MIB
            assert resident_bytes() - before < 20 * MIB
            stubborn.close()

    run(story())


@pytest.mark.parametrize("send_buffer_bytes", [64 * KIB, -1])
def test_the_send_buffer_is_as_it_was_set(run: Run, send_buffer_bytes: int) -> None:
    async def story() -> None:
        async with serving(send_buffer_bytes=send_buffer_bytes) as served:
            raw, client = await served.raw_dial(4 * KIB)
            raw.sendall(frame_of(b"R" + struct.pack(">I", 30 * MIB)))
            await until(lambda: is_stuck(client))
            sender = client.sender
            assert sender is not None
            unsent_bytes = sender.queued_bytes
            if send_buffer_bytes > 0:
                assert unsent_bytes > 30 * MIB - MIB // 2, "Linux doubles what is asked for"
            else:
                assert unsent_bytes < 30 * MIB - MIB, "the kernel lets it grow"
            raw.close()

    run(story())


def test_a_greedy_client_shares_the_loop(run: Run) -> None:
    """Thousands of requests arrive in one read, their replies are large, and their peer reads as fast as it can."""
    limits = replace(DEFAULT_LIMITS, reply_bytes_max=256 * KIB)
    count = 4_000

    async def story() -> None:
        async with serving(limits) as served:
            greedy, modest = await served.dial(limit=MIB), await served.dial()
            greedy.ask(*[b"R" + struct.pack(">I", 50 * KIB)] * count)
            answered = 0

            async def devour() -> None:
                nonlocal answered
                for _ in range(count):
                    assert len(await greedy.answer()) == 50 * KIB
                    answered += 1

            devouring = asyncio.create_task(devour())
            modest.ask(b"Eplease")
            assert await modest.answer() == b"Eplease"
            assert answered < count // 2
            await devouring

    run(story())


def test_a_slow_reader_gets_everything_once_it_reads(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, reply_bytes_max=MIB)
    bodies = [b"E" + bytes([number % 256]) * 60_000 for number in range(200)]

    async def story() -> None:
        async with serving(limits) as served:
            peer = await served.dial(16 * KIB, limit=4 * KIB)
            sending = asyncio.ensure_future(_send_all(peer, bodies))
            await until(lambda: peer.is_stuck)
            for body in bodies:
                assert await peer.answer() == body
            await sending

    async def _send_all(peer: Peer, bodies: list[bytes]) -> None:
        for body in bodies:
            peer.ask(body)
            await peer.writer.drain()

    run(story())


def test_file_slices_arrive_intact_at_a_slow_reader(run: Run, tmp_path: Path) -> None:
    disk, content = a_file(tmp_path, 12 * MIB)
    spans = [
        (0, 12 * MIB),
        (5, 1),
        (100, 8 * KIB),
        (8 * MIB, 4 * MIB),
        (77, 0),
        (1_000, SMALL_SLICE_BYTES),
        (1_001, SMALL_SLICE_BYTES + 1),
        (3, 3 * MIB),
    ]

    async def story() -> None:
        async with serving() as served:
            served.node.file = disk.open("segment")
            before = open_files()
            peer = await served.dial(16 * KIB, limit=16 * KIB)
            requests: list[bytes] = []
            expected: list[bytes] = []
            for position, length in spans:
                requests += [slice_request(position, length), b"Ebetween"]
                expected += [content[position : position + length], b"Ebetween"]
            peer.ask(*requests)
            await until(lambda: peer.is_stuck)
            for body in expected:
                assert await peer.answer() == body
            await peer.close()
            await until(lambda: open_files() <= before)  # the watched duplicate is closed

    run(story())
    disk.close()


def test_many_slow_readers_of_one_file(run: Run, tmp_path: Path) -> None:
    disk, content = a_file(tmp_path, 3 * MIB)

    async def story() -> None:
        async with serving() as served:
            served.node.file = disk.open("segment")
            peers = [await served.dial(limit=8 * KIB) for _ in range(40)]
            for round_number in range(3):
                for peer in peers:
                    peer.ask(slice_request(round_number, 2 * MIB))
                for peer in peers:
                    assert await peer.answer() == content[round_number : round_number + 2 * MIB]

    run(story())
    disk.close()


def test_a_file_shorter_than_promised_closes_the_connection(run: Run, tmp_path: Path) -> None:
    disk, content = a_file(tmp_path, 100 * KIB)

    async def story() -> None:
        async with serving() as served:
            served.node.file = disk.open("segment")
            for request in (slice_request(50 * KIB, 80 * KIB), slice_request(99 * KIB, 2 * KIB)):
                peer = await served.dial()
                peer.ask(request)
                received = b""
                try:
                    received = await asyncio.wait_for(peer.reader.read(), 60)
                except ConnectionError:
                    pass
                assert len(received) < 4 + 80 * KIB
            healthy = await served.dial()
            healthy.ask(slice_request(0, 100 * KIB))
            assert await healthy.answer() == content

    run(story())
    disk.close()


def test_a_peer_that_closes_its_side_still_gets_its_replies(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peer = await served.dial()
            peer.ask(b"Efirst", b"W", b"S", b"R" + struct.pack(">I", 5 * MIB))
            peer.writer.write_eof()
            await until(lambda: served.node.waiting and peer.client is not None and peer.client.close_by_ms)
            assert await peer.answer() == b"Efirst"
            assert {await peer.answer(), await peer.answer()} == {b"S", bytes(5 * MIB)}
            served.node.release()  # all else is out by now: only this one keeps the connection open
            assert await peer.answer() == b"released"
            assert await peer.is_dropped()

    run(story())


class CountingFile:
    """A file that counts what is read of it."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.read_bytes = 0

    def read_at(self, position: int, size: int) -> bytes:
        self.read_bytes += size
        return self.file.read_at(position, size)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def test_small_slices_are_read_when_the_socket_takes_them(run: Run, tmp_path: Path) -> None:
    """Eight peers ask for 9 MiB each in small pieces and read nothing. One of them then reads after all."""
    disk, content = a_file(tmp_path, MIB)
    spans = [(number * SMALL_SLICE_BYTES % (MIB - SMALL_SLICE_BYTES), SMALL_SLICE_BYTES) for number in range(600)]

    async def story() -> None:
        async with serving() as served:
            counted = CountingFile(disk.open("segment"))
            served.node.file = cast(File, counted)
            requests = b"".join(frame_of(slice_request(*span)) for span in spans)
            peers = [await served.raw_dial(4 * KIB) for _ in range(8)]
            sending = [asyncio.get_running_loop().run_in_executor(None, raw.sendall, requests) for raw, _ in peers]
            await asyncio.gather(*sending)
            await until(lambda: all(cast(Any, client.connection).handled_bytes == len(requests) for _, client in peers))
            assert counted.read_bytes < 8 * 6 * MIB, "hardly more than the sockets took"
            assert served.clients.queued_bytes < 8 * 600 * 3 * PART_BYTES

            raw, client = peers[0]
            raw.setblocking(False)
            loop = asyncio.get_running_loop()
            received = bytearray()
            wanted = b"".join(length.to_bytes(4, "big") + content[at : at + length] for at, length in spans)
            while len(received) < len(wanted):
                received += await loop.sock_recv(raw, MIB)
            assert received == wanted
            await until(lambda: client.queued_bytes == 0)
            for raw, _ in peers:
                raw.close()
            await until(lambda: not served.clients.connected)
            assert served.clients.queued_bytes == 0

    run(story())
    disk.close()


def test_when_unread_replies_take_too_much_memory_those_with_the_most_are_disconnected(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    limits = replace(DEFAULT_LIMITS, replies_bytes_max=32 * MIB)

    async def story() -> None:
        async with serving(limits) as served:
            clients = served.clients
            modest, modest_client = await served.raw_dial(4 * KIB)
            modest.sendall(frame_of(b"R" + struct.pack(">I", 5 * MIB)))
            await until(lambda: is_stuck(modest_client))
            good = await served.dial(limit=MIB)
            greedy = []
            for _ in range(12):
                raw, client = await served.raw_dial(4 * KIB)
                raw.sendall(frame_of(b"R" + struct.pack(">I", 15 * MIB)))
                greedy.append((raw, client))
                await until(lambda: is_stuck(client) or client not in clients.connected)  # noqa: B023
                assert clients.queued_bytes < 32 * MIB * 9 // 8 + 16 * MIB
                good.ask(b"Estill served")
                assert await good.answer() == b"Estill served"
            assert clients.shed >= 9
            assert modest_client in clients.connected, "it takes less than the others"
            for raw, _ in greedy:
                raw.close()
            await until(lambda: len(clients.connected) == 2)
            good.ask(b"R" + struct.pack(">I", 20 * MIB))
            assert len(await good.answer()) == 20 * MIB, "the shortage ended with its cause"
            modest.close()

    run(story())
    assert "limits.replies_bytes_max is" in caplog.text


def test_a_reset_in_the_middle_of_a_reply_touches_nobody_else(run: Run, tmp_path: Path) -> None:
    disk, content = a_file(tmp_path, 20 * MIB)

    async def story() -> None:
        async with serving() as served:
            served.node.file = disk.open("segment")
            healthy = await served.dial(limit=MIB)
            gc.collect()  # files that stories before this one left open
            before = open_files()
            for number in range(10):
                rude, client = await served.raw_dial(4 * KIB)
                rude.sendall(frame_of(slice_request(0, 20 * MIB)) + frame_of(b"W"))
                await until(lambda: is_stuck(client))  # noqa: B023
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                rude.close()
                healthy.ask(b"E%d" % number)
                assert await healthy.answer() == b"E%d" % number
            await until(lambda: served.node.closed_count == 10)
            await until(lambda: open_files() <= before)  # clients of other tests may close theirs meanwhile
            served.node.release(10)  # replies for the dead are dropped
            healthy.ask(slice_request(0, 20 * MIB))
            assert await healthy.answer() == content

    run(story())
    disk.close()


def test_a_bug_closes_its_own_connection_only_and_leaves_a_traceback(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()

    async def story() -> None:
        async with serving(clock=clock) as served:
            broken, healthy = await served.dial(), await served.dial()
            broken.ask(b"X", b"Enever")
            assert await broken.is_dropped()
            healthy.ask(b"Ealive")
            assert await healthy.answer() == b"Ealive"
            await until(lambda: served.node.closed_count == 1)
            for _ in range(30):
                assert await (await _broken_again(served)).is_dropped()
            clock.now_ms += 1_000
            assert await (await _broken_again(served)).is_dropped()

    async def _broken_again(served: Served) -> Peer:
        peer = await served.dial()
        peer.ask(b"X")
        return peer

    run(story())
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == REPORTS_PER_SECOND + 1, "told, but not as often as a peer likes"


def test_a_bug_at_the_door_leaves_nothing_behind(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            before = open_files()
            served.node.fails_to_connect = True
            peer = await served.knock()
            assert await peer.is_dropped()
            await peer.close()
            served.node.fails_to_connect = False
            healthy = await served.dial()
            healthy.ask(b"Ealive")
            assert await healthy.answer() == b"Ealive"
            await healthy.close()
            await until(lambda: not served.clients.connected)
            await until(lambda: open_files() <= before)

    run(story())


def test_hanging_up_sends_what_was_answered_before(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peer = await served.dial()
            peer.ask(b"Elast words", b"R" + struct.pack(">I", 3 * MIB), b"H", b"Enever")
            assert await peer.answer() == b"Elast words"
            assert await peer.answer() == bytes(3 * MIB)
            assert await peer.is_dropped()

    run(story())


def test_a_client_that_announces_too_much_is_hung_up_on(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peer = await served.dial()
            peer.writer.write(b"\xff\xff\xff\xff")
            assert await peer.is_dropped()

    run(story())


def test_five_hundred_idle_connections_cost_little(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            raws = [(await served.raw_dial(4 * KIB))[0]]
            before = resident_bytes()
            raws += [(await served.raw_dial(4 * KIB))[0] for _ in range(500)]
            for raw in raws:
                raw.sendall(frame_of(b"Ehello"))
            await until(lambda: all(connection.seen_bytes for connection in served.node.connections))
            each = (resident_bytes() - before) / 500
            print(f"{each:.0f} bytes for each idle connection", file=sys.stderr)
            assert len(served.clients.connected) == 501
            assert each < 8 * KIB
            for raw in raws:
                raw.close()

    run(story())


def test_draining_answers_what_is_under_way_then_closes(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            waiting, idle = await served.dial(), await served.dial()
            waiting.ask(b"W")
            await until(lambda: served.node.waiting)
            draining = asyncio.ensure_future(served.clients.drain(60))
            assert await idle.is_dropped()
            served.node.release()
            assert await waiting.answer() == b"released"
            assert await waiting.is_dropped()
            assert await draining == 0

    run(story())


def test_draining_is_bounded(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            for_ever = await served.dial()
            for_ever.ask(b"W")
            await until(lambda: served.node.waiting)
            assert await served.clients.drain(0.1) == 1
            assert await for_ever.is_dropped()

    run(story())
