"""Requests in, replies out: their order, the limits on what may be under way, and how a connection ends."""

import struct
from typing import Any

import pytest
from broker_world import World, batch, code, part, values

from skidway.broker.api.call import Hangup
from skidway.broker.api.connection import TURN_MS_MAX
from skidway.limits import PART_BYTES, Limits


@pytest.fixture
def world() -> World:
    world = World()
    world.peer().create("t", flush="sync")
    world.peer().create("quick", flush="os")
    return world


def test_replies_keep_the_order_of_their_requests(world: World) -> None:
    """A long poll and an acks=all wait; what was asked after them is ready at once, and still comes after them."""
    peer = world.peer()
    poll = peer.fetch({("quick", 0): 0}, max_wait_ms=500)
    write = peer.produce("t", batch(b"x"))
    listed = peer.send("Metadata", topics=[])
    world.end_turn()
    assert peer.replies() == []
    world.sync()
    assert peer.replies() == []  # the write is done, but the poll before it is not
    world.pass_time(500)
    assert [correlation_id for correlation_id, _ in peer.replies()] == [poll, write, listed]
    assert peer.ready_count == 1


def test_a_reply_that_is_ready_at_once_needs_no_wake_up(world: World) -> None:
    peer = world.peer()
    peer.send("ApiVersions")
    peer.send("Metadata", topics=None)
    assert len(peer.replies()) == 2
    assert peer.ready_count == 0


def test_frames_come_in_any_pieces(world: World) -> None:
    peer = world.peer()
    data = peer.frame("ApiVersions") + peer.frame("Metadata", topics=[])
    for at in range(len(data)):
        peer.give(data[at : at + 1])
    assert len(peer.replies()) == 2
    assert peer.tail == b""


def test_the_shell_is_told_how_long_a_frame_will_be(world: World) -> None:
    peer = world.peer()
    frame = peer.frame("Metadata", topics=[])
    peer.give(frame[:3])
    assert peer.connection.needed == 0
    peer.give(frame[3:9])
    assert peer.connection.needed == len(frame)
    peer.give(frame[9:])
    assert peer.connection.needed == 0


def test_reading_stops_at_the_limit_of_requests_under_way_and_goes_on_after_it() -> None:
    world = World(limits=Limits(inflight_requests_max=3))
    world.peer().create("t", flush="os")
    peer = world.peer()
    frames = b"".join(peer.fetch_frame({("t", 0): 0}, max_wait_ms=100) for _ in range(5))
    peer.give(frames)
    assert peer.connection.paused
    assert len(peer.connection.pending) == 3
    world.pass_time(100)
    assert len(peer.replies()) == 3
    assert peer.ready_count > 0
    peer.give(b"")
    assert not peer.connection.paused
    assert peer.tail == b""
    world.pass_time(100)
    assert len(peer.replies()) == 2


def test_large_replies_behind_a_waiting_one_count_as_well() -> None:
    world = World(limits=Limits(reply_bytes_max=2_000))
    world.peer().create("t", flush="os")
    peer = world.peer()
    listing = [peer.frame("ApiVersions") for _ in range(50)]
    peer.fetch({("t", 0): 0}, max_wait_ms=100)
    peer.give(b"".join(listing))
    assert peer.connection.paused
    assert 2_000 <= peer.connection.waiting_bytes < 3_000
    assert world.node.rooms.services.waiting_bytes == peer.connection.waiting_bytes


def test_replies_held_back_are_bounded_for_all_connections_together() -> None:
    world = World(limits=Limits(replies_bytes_max=3_000))
    world.peer().create("t", flush="os")
    peers = [world.peer() for _ in range(20)]
    for peer in peers:
        peer.fetch({("t", 0): 0}, max_wait_ms=100)
        peer.give(b"".join(peer.frame("ApiVersions") for _ in range(50)))
    assert world.node.rooms.services.waiting_bytes < 3_000 + 20 * (400 + PART_BYTES)
    world.pass_time(100)
    assert world.node.rooms.services.waiting_bytes == 0
    for peer in peers:
        while peer.connection.paused:
            peer.replies()
            peer.give(b"")
    assert world.node.rooms.services.waiting_bytes == 0


def test_a_connection_that_has_had_its_time_lets_the_others_go_on(world: World) -> None:
    peer = world.peer()
    frames = b"".join(peer.frame("ApiVersions") for _ in range(10))
    world.clock.per_look_ms = TURN_MS_MAX // 2
    peer.give(frames)
    assert (peer.connection.paused, peer.connection.yielded) == (True, True)
    handled = len(peer.replies())
    assert 0 < handled < 10
    rounds = 0
    while peer.connection.paused:
        peer.give(b"")
        handled += len(peer.replies())
        rounds += 1
    assert handled == 10
    assert rounds > 1


BAD_FRAMES = {
    "negative length": struct.pack(">i", -1) + bytes(20),
    "too short for a header": struct.pack(">i", 7) + bytes(20),
    "longer than allowed": struct.pack(">i", 2**31 - 1),
    "an API nobody serves": struct.pack(">ihhih", 10, 4, 0, 1, -1),
    "a version nobody serves": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "a body that ends early": struct.pack(">ihhih", 10, 3, 4, 1, -1),
    "a client id that ends early": struct.pack(">ihhih", 10, 3, 4, 1, 100),
}


@pytest.mark.parametrize("bad", BAD_FRAMES)
def test_what_cannot_be_read_ends_the_connection_after_the_replies_before_it(world: World, bad: str) -> None:
    peer = world.peer()
    good = peer.frame("ApiVersions")
    with pytest.raises(Hangup):
        peer.give(good + BAD_FRAMES[bad] + good)
    assert len(peer.replies()) == 1


def test_an_unknown_version_of_api_versions_is_answered(world: World) -> None:
    peer = world.peer()
    peer.asked.append((9, "ApiVersions", 0))
    peer.give(struct.pack(">ihhihbb", 12, 18, 99, 9, -1, 0, 0))
    assert peer.reply().error_code == 35


def test_acks_0_is_silent_until_it_fails(world: World) -> None:
    peer = world.peer()
    peer.produce("quick", batch(b"one"), acks=0)
    listed = peer.send("Metadata", topics=[])
    world.settle()
    assert [correlation_id for correlation_id, _ in peer.replies()] == [listed]
    assert world.partition("quick").log.end_offset == 1
    with pytest.raises(Hangup, match="acks=0"):
        peer.produce("nowhere", batch(b"two"), acks=0)


def test_acks_that_do_not_exist(world: World) -> None:
    peer = world.peer()
    peer.produce("t", batch(b"x"), acks=2)
    assert code(peer.reply()) == 21
    assert world.partition("t").log.end_offset == 0


def parked(world: World) -> int:
    return len(world.node.waiting.polls) + len(world.node.waiting.acknowledgements) + len(world.node.timers)


def test_who_hangs_up_leaves_nothing_behind(world: World) -> None:
    before = parked(world)
    for _ in range(50):
        peer = world.peer()
        for _ in range(10):
            peer.fetch({("t", 0): 0, ("quick", 0): 0}, max_wait_ms=100_000)
        peer.produce("t", batch(b"x"))
        peer.send("Metadata", topics=[])
        assert parked(world) > before
        peer.connection.closed()
        assert parked(world) == before
        assert world.node.waiting.polls.waits == 0
        assert world.node.rooms.services.waiting_bytes == 0
    world.settle()
    assert world.partition("t").log.high_watermark == 50  # written all the same


def test_an_answer_for_someone_who_is_gone_is_dropped(world: World) -> None:
    peer = world.peer()
    topic = part("CreateTopics", "CreatableTopic", "late", 1, 1)
    peer.send("CreateTopics", topics=[topic], timeout_ms=1000)
    world.end_turn()
    peer.connection.closed()
    world.settle()
    assert peer.connection.outbox == []
    assert "late" in world.node.image.topics


def test_the_node_stops_long_polls_when_it_stops(world: World) -> None:
    peer = world.peer()
    peer.fetch({("quick", 0): 0}, max_wait_ms=100_000)
    world.node.begin_stop(world.clock.now_ms)
    response: Any = peer.reply()
    assert values(response) == []


def test_a_bug_in_one_reply_costs_one_connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two polls wait for the same partition; reading for the first of them goes wrong."""
    unlucky, lucky, writer = world.peer(), world.peer(), world.peer()
    unlucky.fetch({("quick", 0): 0}, max_wait_ms=1000)
    lucky.fetch({("quick", 0): 0}, max_wait_ms=1000)
    log_type = type(world.partition("quick").log)
    read = log_type.read
    failed: list[int] = []

    def read_badly(*arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(1)
            raise ZeroDivisionError("a bug")
        return read(*arguments, **options)

    monkeypatch.setattr(log_type, "read", read_badly)
    writer.produce("quick", batch(b"x"))
    writer.produce("t", batch(b"y"))
    world.settle()
    assert isinstance(unlucky.connection.bug, ZeroDivisionError)
    assert unlucky.ready_count == 1
    assert values(lucky.reply()) == [b"x"]
    assert [code(response) for _, response in writer.replies()] == [0, 0]
