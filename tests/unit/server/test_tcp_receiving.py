"""Frames in: whatever the pieces they arrive in, whatever their size, and never more memory than allowed."""

import asyncio
import random
from mmap import mmap

from msgspec.structs import replace
from server_fake_node import HandClock, Run, frame_of, serving

from skidway.limits import DEFAULT_LIMITS, KIB, MIB
from skidway.server.receiving import SCRATCH_BYTES, ReceiveMemory, bytes_wanted, capacity_for
from waiting import until


def test_pipelined_frames_in_odd_pieces_are_answered_in_order(run: Run) -> None:
    rng = random.Random(7)
    bodies = [b"E" + rng.randbytes(rng.choice((0, 1, 3, 100, 9_000, 70_000, 300_000))) for _ in range(120)]

    async def story() -> None:
        async with serving() as served:
            peer = await served.dial(limit=MIB)
            stream = b"".join(frame_of(body) for body in bodies)

            async def send() -> None:
                position = 0
                while position < len(stream):
                    size = rng.choice((1, 2, 3, 5, 1_460, 8_193, 65_537, 262_144, 400_000))
                    peer.writer.write(stream[position : position + size])
                    await peer.writer.drain()
                    position += size
                    if size < 10:
                        await until(lambda: peer.seen_bytes >= position)  # noqa: B023 - the piece arrives alone

            sending = asyncio.ensure_future(send())
            for body in bodies:
                assert await peer.answer() == body
            await sending
            assert served.clients.memory.used_bytes == 0
            await peer.close()

    run(story())


def test_two_connections_with_partial_frames_do_not_mix(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            first, second = await served.dial(), await served.dial()
            one, two = b"E" + b"1" * 50_000, b"E" + b"2" * 50_000
            for peer, body in ((first, one), (second, two)):
                peer.writer.write(frame_of(body)[:30_000])
            await until(lambda: first.seen_bytes == second.seen_bytes == 30_000)
            for peer, body in ((first, one), (second, two)):
                peer.writer.write(frame_of(body)[30_000:])
            assert await first.answer() == one
            assert await second.answer() == two

    run(story())


def test_a_giant_frame_grows_its_buffer_and_gives_it_back(run: Run) -> None:
    body = b"E" + bytes(range(256)) * (40 * MIB // 256)

    async def story() -> None:
        async with serving() as served:
            peer = await served.dial(limit=8 * MIB)
            peer.ask(body)
            assert await peer.answer() == body
            peer.ask(b"Esmall again")
            assert await peer.answer() == b"Esmall again"
            assert served.clients.memory.used_bytes == 0
            assert served.node.connections[0].largest_view >= len(body)

    run(story())


def test_a_buffer_that_the_node_keeps_is_not_read_into_again(run: Run) -> None:
    rng = random.Random(11)
    first, second = b"K" + rng.randbytes(7 * MIB), b"K" + rng.randbytes(6 * MIB)

    async def story() -> None:
        async with serving() as served:
            peer = await served.dial(limit=8 * MIB)
            # The second begins in the buffer of the first.
            peer.writer.write(frame_of(first) + frame_of(second) + frame_of(b"Ebehind"))
            await until(lambda: len(served.node.waiting) == 2)
            kept = served.node.connections[0].kept_frames
            buffers = {id(frame.obj) for frame in kept}
            assert all(isinstance(frame.obj, mmap) for frame in kept), "neither was copied"
            assert len(buffers) == 2
            assert await peer.answer() == b"Ebehind"
            assert served.clients.memory.used_bytes == 0, "what was given away does not count"
            served.node.release(2)
            assert await peer.answer() == first
            assert await peer.answer() == second

    run(story())


def test_the_buffer_of_a_large_frame_grows_without_a_copy() -> None:
    memory = ReceiveMemory(200 * MIB)
    buffer = memory.take(5 * MIB, 100 * MIB)
    buffer[0] = 7
    grown = memory.grow(buffer, 9 * MIB)
    assert grown is not None
    assert (grown.obj, grown[0]) == (buffer.obj, 7)
    assert memory.used_bytes == memory.long_bytes == len(grown) == 9 * MIB
    assert memory.grow(grown, 101 * MIB) is None, "it has room for its frame and no more"
    memory.give_back(grown)
    assert memory.used_bytes == memory.long_bytes == 0
    assert memory.grow(memory.take(MIB), 2 * MIB) is None


def test_an_announced_frame_costs_only_what_was_sent(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peers = [await served.dial() for _ in range(20)]
            for peer in peers:
                peer.writer.write((100 * MIB).to_bytes(4, "big") + b"E" + bytes(20_000))
            await until(lambda: all(peer.seen_bytes == 20_005 for peer in peers))
            assert 20 * 20_000 < served.clients.memory.used_bytes <= 20 * SCRATCH_BYTES

    run(story())


def test_when_memory_is_short_newcomers_wait_and_nobody_starves(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, frame_bytes_max=2 * MIB, receive_bytes_max=2 * MIB)
    body = b"E" + bytes(MIB)

    async def story() -> None:
        async with serving(limits) as served:
            peers = [await served.dial(limit=4 * MIB) for _ in range(12)]
            memory = served.clients.memory
            used: list[int] = []
            take = memory.take

            def counted_take(size: int, frame_bytes: int = 0) -> memoryview:
                buffer = take(size, frame_bytes)
                used.append(memory.used_bytes)
                return buffer

            memory.take = counted_take  # type: ignore[method-assign]
            for peer in peers:  # all begin, none is whole
                peer.writer.write(frame_of(body)[: 700 * KIB])
            await until(lambda: all(peer.client in memory.waiting or peer.seen_bytes == 700 * KIB for peer in peers))
            # At most the limit, one frame that may always be finished, and one read's worth for each that waits.
            assert max(used) <= 2 * MIB + 2 * MIB + 12 * SCRATCH_BYTES
            assert memory.waiting
            for peer in peers:
                peer.writer.write(frame_of(body)[700 * KIB :])
            for peer in peers:
                assert await peer.answer() == body

    run(story())


def test_a_frame_that_is_never_completed_is_given_up(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, frame_complete_ms=200)
    clock = HandClock()

    async def story() -> None:
        async with serving(limits, clock=clock) as served:
            slow, honest = await served.dial(), await served.dial()
            slow.writer.write(frame_of(b"E" + bytes(100))[:7])
            await until(lambda: slow.seen_bytes == 7)
            clock.now_ms += 200
            for client in list(served.clients.connected):
                client.check_time(clock.now_ms)
            honest.ask(b"Enot too late yet")
            assert await honest.answer() == b"Enot too late yet"
            assert served.node.closed_count == 0
            clock.now_ms += 1
            assert await slow.is_dropped()
            honest.ask(b"Estill here")
            assert await honest.answer() == b"Estill here"
            await until(lambda: served.node.closed_count == 1)

    run(story())


def test_a_large_frame_at_a_fair_rate_may_take_its_time(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, frame_complete_ms=100)
    body = b"E" + bytes(60 * KIB)
    clock = HandClock()

    async def story() -> None:
        async with serving(limits, clock=clock) as served:
            peer = await served.dial()
            stream = frame_of(body)
            for end in range(6 * KIB, len(stream), 6 * KIB):
                peer.writer.write(stream[end - 6 * KIB : end])
                await until(lambda: peer.seen_bytes == end)  # noqa: B023
                clock.now_ms += 300
                assert peer.client is not None
                peer.client.check_time(clock.now_ms)
            peer.writer.write(stream[end:])
            assert await peer.answer() == body

    run(story())


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, connection_idle_ms=200)
    clock = HandClock()

    async def story() -> None:
        async with serving(limits, clock=clock) as served:
            waiting = await served.dial()
            waiting.ask(b"W")
            await until(lambda: served.node.waiting)
            for _ in range(2):
                idle = await served.dial()
                clock.now_ms += 201
                assert await idle.is_dropped()  # by a look at all clients, the one that waits among them
            served.node.release()
            assert await waiting.answer() == b"released"

    run(story())


def test_connections_past_the_limits_are_refused(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, connections_max=3, connections_per_ip_max=3)

    async def story() -> None:
        async with serving(limits) as served:
            peers = [await served.dial() for _ in range(3)]
            for peer in peers:
                peer.ask(b"Ein")
                assert await peer.answer() == b"Ein"
            refused = await served.knock()
            assert await refused.is_dropped()
            assert served.clients.refused == 1
            await peers[0].close()
            await until(lambda: len(served.clients.connected) == 2)
            again = await served.dial()
            again.ask(b"Enow")
            assert await again.answer() == b"Enow"

    run(story())


def test_too_many_requests_in_flight_stop_the_reading(run: Run) -> None:
    limits = replace(DEFAULT_LIMITS, inflight_requests_max=4)

    async def story() -> None:
        async with serving(limits) as served:
            peer = await served.dial()
            peer.ask(*[b"W"] * 50)
            await until(lambda: peer.seen_bytes == 50 * len(frame_of(b"W")))
            assert len(served.node.waiting) == 4
            for _ in range(50):
                assert 1 <= len(served.node.waiting) <= 4
                served.node.release()
                assert await peer.answer() == b"released"

    run(story())


def test_buffer_sizes() -> None:
    assert capacity_for(1) == 64 * KIB
    assert capacity_for(64 * KIB + 1) == 128 * KIB
    assert capacity_for(MIB) == MIB
    assert capacity_for(100 * MIB + 4) == 101 * MIB
    assert bytes_wanted(100_000, 9_000) == 100_000
    assert bytes_wanted(100 * MIB, 9_000) == SCRATCH_BYTES
    assert bytes_wanted(100 * MIB, 90 * MIB) == 100 * MIB


def test_buffers_are_reused() -> None:
    memory = ReceiveMemory(10 * MIB)
    buffer = memory.take(100_000)
    assert memory.used_bytes == len(buffer) == 128 * KIB
    memory.give_back(buffer)
    assert memory.used_bytes == 0
    assert memory.take(128 * KIB) is buffer


class Reader:
    def on_memory(self) -> None:
        raise AssertionError("nobody waits here")


def test_one_that_may_always_go_on_takes_nothing_of_what_is_kept_for_short_frames() -> None:
    """Where a single frame may be larger than the quarter that is kept for short ones."""
    memory = ReceiveMemory(128 * MIB)
    greedy, late, short = Reader(), Reader(), Reader()
    for _ in range(6):
        assert memory.has_room(16 * MIB, Reader())
        memory.take(16 * MIB)
    assert memory.has_room(80 * MIB, greedy), "one may always go on"
    memory.take(80 * MIB)
    assert not memory.has_room(MIB, late)
    for _ in range(128):
        assert memory.has_room(256 * KIB, short)
        memory.take(256 * KIB)
    assert not memory.has_room(256 * KIB, short), "short ones have a bound too"
