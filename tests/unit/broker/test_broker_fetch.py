"""Fetching: what can be seen, what is waited for, and what a session remembers."""

from typing import Any

import pytest
from broker_world import World, batch, part, values

from skidway.broker.api.call import LocalCall
from skidway.broker.api.caller import this_node
from skidway.broker.reads.sessions import IDLE_BEFORE_EVICTION_MS, TARGETS_PER_STEP
from skidway.errors import ErrorCode
from skidway.limits import Limits
from skidway.steps import at_once

SESSION_NOT_FOUND = 70
WRONG_EPOCH = 71


@pytest.fixture
def world() -> World:
    world = World()
    world.peer().create("os", 3, flush="os")
    world.peer().create("sync", flush="sync")
    return world


def write(world: World, topic: str, *contents: bytes, index: int = 0) -> None:
    world.peer().produce(topic, batch(*contents), index=index, acks=1)


def test_a_long_poll_is_woken_by_what_is_produced(world: World) -> None:
    reader = world.peer()
    reader.fetch({("os", 0): 0}, max_wait_ms=1000)
    write(world, "os", b"one")
    assert reader.replies() == []
    world.end_turn()
    assert values(reader.reply()) == [b"one"]


def test_with_flush_sync_only_what_is_synced_can_be_seen(world: World) -> None:
    reader = world.peer()
    reader.fetch({("sync", 0): 0}, max_wait_ms=1000)
    write(world, "sync", b"one")
    world.end_turn()
    assert reader.replies() == []
    reader2 = world.peer()
    reader2.fetch({("sync", 0): 0})
    empty = reader2.reply()
    assert values(empty) == []
    assert empty.responses[0].partitions[0].high_watermark == 0
    write(world, "sync", b"two")  # while the sync of the first is under way
    world.end_turn()
    world.sync()
    assert values(reader.reply()) == [b"one"]
    reader2.fetch({("sync", 0): 0})
    assert values(reader2.reply()) == [b"one"]
    world.settle()
    reader2.fetch({("sync", 0): 0})
    assert values(reader2.reply()) == [b"one", b"two"]


def test_acks_all_waits_for_the_sync_and_acks_1_does_not(world: World) -> None:
    sure, quick = world.peer(), world.peer()
    sure.produce("sync", batch(b"a"), acks=-1)
    quick.produce("sync", batch(b"b"), acks=1)
    assert len(quick.replies()) == 1
    world.end_turn()
    assert sure.replies() == []
    world.sync()
    assert len(sure.replies()) == 1


def test_one_sync_covers_everything_of_a_turn(world: World) -> None:
    peers = [world.peer() for _ in range(5)]
    for peer in peers:
        peer.produce("sync", batch(b"x"))
    world.end_turn()
    assert len(world.held) == 1
    world.sync()
    assert [len(peer.replies()) for peer in peers] == [1] * 5


def test_acks_all_that_takes_too_long_is_told_so(world: World) -> None:
    peer = world.peer()
    peer.produce("sync", batch(b"x"), timeout_ms=50)
    world.end_turn()
    world.pass_time(50)
    assert peer.reply().responses[0].partition_responses[0].error_code == 7
    world.sync()
    assert peer.replies() == []


def test_min_bytes_are_counted_over_all_partitions(world: World) -> None:
    one = len(batch(b"12345"))
    reader = world.peer()
    reader.fetch({("os", index): 0 for index in range(3)}, max_wait_ms=1000, min_bytes=3 * one)
    for index in range(3):
        assert reader.replies() == []
        write(world, "os", b"12345", index=index)
        world.end_turn()
    assert [len(values(reader_reply, 0, index)) for reader_reply in [reader.reply()] for index in range(3)] == [1, 1, 1]


def test_what_is_there_comes_when_the_time_is_over(world: World) -> None:
    write(world, "os", b"little")
    world.end_turn()
    reader = world.peer()
    reader.fetch({("os", 0): 0}, max_wait_ms=300, min_bytes=10_000)
    world.pass_time(299)
    assert reader.replies() == []
    world.pass_time(1)
    assert values(reader.reply()) == [b"little"]
    assert len(world.node.waiting.polls) == 0


def test_waiting_for_ever_is_not_possible(world: World) -> None:
    reader = world.peer()
    reader.fetch({("os", 0): 0}, max_wait_ms=2**31 - 1)
    world.pass_time(world.node.limits.fetch_wait_ms_max)
    assert values(reader.reply()) == []


def test_an_error_does_not_wait(world: World) -> None:
    reader = world.peer()
    reader.fetch({("os", 0): 0, ("nowhere", 0): 0, ("os", 7): 0, ("os", 1): 5}, max_wait_ms=1000)
    response = reader.reply()
    codes = {(topic.topic, p.partition_index): p.error_code for topic in response.responses for p in topic.partitions}
    assert codes == {("os", 0): 0, ("nowhere", 0): 3, ("os", 7): 3, ("os", 1): 1}


def test_a_partition_named_twice_is_fetched_once(world: World) -> None:
    write(world, "os", b"a", b"b")
    reader = world.peer()
    wanted = [part("Fetch", "FetchPartition", 0, fetch_offset=offset, partition_max_bytes=1000) for offset in (9, 0)]
    reader.send("Fetch", topics=[part("Fetch", "FetchTopic", "os", partitions=wanted)], max_bytes=1000)
    (topic,) = reader.reply().responses
    assert [p.error_code for p in topic.partitions] == [0]


def test_the_first_batch_comes_however_large_and_the_rest_keeps_to_the_limits(world: World) -> None:
    for index in range(3):
        write(world, "os", b"x" * 5000, index=index)
    world.end_turn()
    reader = world.peer()
    reader.fetch({("os", index): 0 for index in range(3)}, max_bytes=100)
    response = reader.reply()
    assert [len(values(response, 0, index)) for index in range(3)] == [1, 0, 0]
    reader.fetch({("os", index): 0 for index in range(3)}, max_bytes=-5)
    assert [len(values(reader.reply(), 0, index)) for index in (0,)] == [1]


def test_a_topic_deleted_while_a_fetch_looks_at_very_many_partitions() -> None:
    """It was looked at, and is gone before the fetch begins to wait."""
    world = World()
    counts = {"first": 290, "second": 300}
    for topic, count in counts.items():
        world.peer().create(topic, count, flush="os")
    asked = [part("Fetch", "FetchTopic", topic, partitions=all_of(count)) for topic, count in counts.items()]
    request = part("Fetch", "FetchRequest", max_wait_ms=1_000, min_bytes=1, topics=asked)
    call = LocalCall(world.node.routes[1, 11], this_node(1), world.clock.now_ms, pytest.fail)
    steps: Any = world.node.rooms.services.consumer_fetches.fetch(call, request)
    # All are named, and those of the first topic were looked at.
    for _ in range(590 // TARGETS_PER_STEP + 300 // TARGETS_PER_STEP):
        assert next(steps) is None
    world.peer().delete("first")
    world.settle()
    told = at_once(steps)
    assert {data.error_code for data in told.responses[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert {data.error_code for data in told.responses[1].partitions} == {0}
    assert world.node.waiting.polls.waits == 0


def all_of(count: int) -> list[Any]:
    return [part("Fetch", "FetchPartition", index, partition_max_bytes=1_000) for index in range(count)]


def test_when_too_many_wait_a_fetch_is_answered_at_once() -> None:
    world = World(limits=Limits(fetch_waits_max=5))
    world.peer().create("t", 3, flush="os")
    patient, refused = world.peer(), world.peer()
    offsets = {("t", index): 0 for index in range(3)}
    patient.fetch(offsets, max_wait_ms=1000)
    refused.fetch(offsets, max_wait_ms=1000)
    assert (len(patient.replies()), len(refused.replies())) == (0, 1)
    patient.connection.closed()
    refused.fetch(offsets, max_wait_ms=1000)
    assert refused.replies() == []


# --- sessions ---


def told(response: Any) -> list[tuple[str, int]]:
    return [(topic.topic, entry.partition_index) for topic in response.responses for entry in topic.partitions]


class Consumer:
    """Keeps a session as clients do."""

    def __init__(self, world: World) -> None:
        self.peer = world.peer()
        self.session_id = self.epoch = 0

    def ask(self, offsets: dict[tuple[str, int], int] | None = None, **fields: Any) -> Any:
        self.peer.fetch(offsets or {}, session_id=self.session_id, session_epoch=self.epoch, **fields)
        response = self.peer.reply()
        if response.error_code == 0 and response.session_id:
            self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response


def test_a_session_tells_everything_once_and_then_what_is_new(world: World) -> None:
    consumer = Consumer(world)
    assert len(told(consumer.ask({("os", index): 0 for index in range(3)}))) == 3
    assert consumer.session_id != 0
    assert told(consumer.ask()) == []
    write(world, "os", b"news", index=1)
    assert told(consumer.ask()) == [("os", 1)]
    assert told(consumer.ask()) == [("os", 1)]  # it has not moved on, so it gets the same again
    assert told(consumer.ask({("os", 1): 1})) == []


def test_partitions_come_and_go_in_a_session(world: World) -> None:
    consumer = Consumer(world)
    consumer.ask({("os", 0): 0})
    assert told(consumer.ask({("os", 2): 0})) == [("os", 2)]
    for index in (0, 2):
        write(world, "os", b"x", index=index)
    forgotten = [part("Fetch", "ForgottenTopic", "os", partitions=[0])]
    assert told(consumer.ask(forgotten_topics_data=forgotten)) == [("os", 2)]
    assert world.node.rooms.services.consumer_fetches.sessions.partition_count == 1


def test_a_partition_forgotten_while_a_poll_waits_for_it(world: World) -> None:
    """The poll is of an older request than the one that forgets; what it finds goes to its own reply."""
    consumer = Consumer(world)
    consumer.ask({("os", 0): 0, ("os", 1): 0})
    peer, epoch = consumer.peer, consumer.epoch
    peer.fetch({}, session_id=consumer.session_id, session_epoch=epoch, max_wait_ms=1000)
    forgotten = [part("Fetch", "ForgottenTopic", "os", partitions=[0])]
    peer.fetch({}, session_id=consumer.session_id, session_epoch=epoch + 1, forgotten_topics_data=forgotten)
    bystander = world.peer()
    bystander.fetch({("os", 0): 0}, max_wait_ms=1000)
    write(world, "os", b"x", index=0)
    world.end_turn()
    assert [told(response) for _, response in peer.replies()] == [[("os", 0)], []]
    assert values(bystander.reply()) == [b"x"]


def test_who_got_bytes_goes_to_the_end_of_the_row(world: World) -> None:
    for index in range(3):
        write(world, "os", b"x" * 1000, index=index)
    consumer = Consumer(world)
    first = []
    served = consumer.ask({("os", index): 0 for index in range(3)}, max_bytes=1)
    for _ in range(3):
        filled = [p.partition_index for topic in served.responses for p in topic.partitions if len(p.records)]
        first.append(filled[0])
        served = consumer.ask(max_bytes=1)
    assert sorted(first) == [0, 1, 2]


def test_sessions_that_are_out_of_step_are_told_so(world: World) -> None:
    consumer = Consumer(world)
    consumer.ask({("os", 0): 0})
    peer = world.peer()
    peer.fetch({}, session_id=consumer.session_id, session_epoch=7)
    assert peer.reply().error_code == WRONG_EPOCH
    peer.fetch({}, session_id=12345, session_epoch=1)
    assert peer.reply().error_code == SESSION_NOT_FOUND
    peer.fetch({("os", 0): 0}, session_id=consumer.session_id, session_epoch=-1)  # ends it
    assert peer.reply().session_id == 0
    assert consumer.ask().error_code == SESSION_NOT_FOUND
    assert world.node.rooms.services.consumer_fetches.sessions.partition_count == 0


def test_a_full_cache_gives_no_sessions_until_one_is_idle() -> None:
    world = World(limits=Limits(fetch_sessions_max=2))
    world.peer().create("t", flush="os")
    consumers = [Consumer(world) for _ in range(3)]
    given = [consumer.ask({("t", 0): 0}).session_id != 0 for consumer in consumers]
    assert given == [True, True, False]
    world.clock.now_ms += IDLE_BEFORE_EVICTION_MS - 1
    consumers[1].ask()
    world.clock.now_ms += 1
    assert consumers[2].ask({("t", 0): 0}).session_id != 0
    assert consumers[0].ask().error_code == SESSION_NOT_FOUND
    assert consumers[1].ask().error_code == 0


def test_partitions_of_all_sessions_are_bounded() -> None:
    world = World(limits=Limits(fetch_session_partitions_max=4))
    world.peer().create("t", 5, flush="os")
    small = Consumer(world)
    small.ask({("t", 0): 0, ("t", 1): 0, ("t", 2): 0})
    assert Consumer(world).ask({("t", index): 0 for index in range(5)}).session_id == 0
    assert small.ask({("t", index): 1 for index in range(3)}).error_code == 0  # the same ones, moved on
    assert small.ask({("t", 3): 0, ("t", 4): 0}).error_code == SESSION_NOT_FOUND
    assert world.node.rooms.services.consumer_fetches.sessions.partition_count == 0
