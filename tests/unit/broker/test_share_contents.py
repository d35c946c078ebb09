"""Records that say when they are to be delivered, and in which order, by groups that ask for it; on a real node."""

import pytest
from broker_world import WALL_MS, World, part
from share_consumers import Member, acquired, initialise, made_world, only

from skidway.broker.shares.opening import due_at
from skidway.errors import ErrorCode
from skidway.records.compression import Codec
from skidway.records.record import Record, build_batch

GROUP = 32
ACCEPT = 1


@pytest.fixture
def world() -> World:
    world = made_world(1)
    initialise(world)
    return world


def set_group(world: World, name: str, value: str) -> None:
    change = part("IncrementalAlterConfigs", "AlterableConfig", name, 0, value)
    resource = part("IncrementalAlterConfigs", "AlterConfigsResource", GROUP, "g", [change])
    (result,) = world.peer().call("IncrementalAlterConfigs", resources=[resource]).responses
    assert result.error_code == 0, result


def produce(world: World, *records: Record, codec: Codec = Codec.NONE) -> None:
    peer = world.peer()
    peer.produce("t", bytes(build_batch(list(records), codec=codec)))
    world.settle()
    assert peer.reply().responses[0].partition_responses[0].error_code == 0


def record(key: bytes | None = None, **headers: str) -> Record:
    named = [(name.replace("_", "-"), value.encode()) for name, value in headers.items()]
    return Record(0, WALL_MS, key, b"x", named)


def test_a_record_is_delivered_no_earlier_than_it_says(world: World) -> None:
    set_group(world, "share.record.delays.enable", "true")
    now_ms = world.clock.wall_ms()
    produce(world, record(deliver_at=str(now_ms + 5_000)), record(), record(deliver_at="soon"), codec=Codec.GZIP)
    ann = Member(world)
    assert acquired(ann.fetch(0)) == [(1, 2, 1)]
    bob = Member(world, "bob")
    bob.fetch_later(0, max_wait_ms=20_000)
    world.pass_time(4_000)
    world.settle()
    assert bob.peer.replies() == []
    world.pass_time(1_500)
    world.settle()
    assert acquired(bob.peer.reply()) == [(0, 0, 1)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_word_in_a_value_delays_nothing(world: World, codec: Codec) -> None:
    """A batch that has no such word anywhere is not opened for times; one that has it is."""
    set_group(world, "share.record.delays.enable", "true")
    later = str(world.clock.wall_ms() + 5_000)
    produce(world, Record(0, WALL_MS, None, b"no delay, please"), record(b"k", other="deliver-at"), codec=codec)
    produce(world, record(), record(deliver_at=later), record(), codec=codec)
    assert acquired(Member(world).fetch(0)) == [(0, 2, 1), (4, 4, 1)]


def test_other_groups_do_not_look_into_records(world: World) -> None:
    produce(world, record(deliver_at=str(world.clock.wall_ms() + 5_000)))
    assert acquired(Member(world).fetch(0)) == [(0, 0, 1)]


def test_records_of_a_key_are_with_one_member_at_a_time(world: World) -> None:
    set_group(world, "share.key.order", "key")
    produce(world, record(b"a"), record(b"b"), record(b"a"), record(b"k" * 5_000))
    ann, bob = Member(world, "ann"), Member(world, "bob")
    assert acquired(ann.fetch(0, max_records=1, share_acquire_mode=1)) == [(0, 0, 1)]
    assert acquired(bob.fetch(0)) == [(1, 1, 1), (3, 3, 1)]
    assert only(ann.acknowledge(0, [(0, 0, [ACCEPT])])).error_code == 0
    assert acquired(bob.fetch(0)) == [(2, 2, 1)]


def test_a_change_of_the_order_is_heard_of_by_fetching_again(world: World) -> None:
    produce(world, record(b"a"), record(b"a"))
    ann = Member(world)
    assert acquired(ann.fetch(0, max_records=1, share_acquire_mode=1)) == [(0, 0, 1)]
    set_group(world, "share.key.order", "key")
    assert only(ann.fetch(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([], 0),
        ([("deliver-at", b"1500")], 1_500),
        ([("delay", b"250")], 1_250),
        ([("delay", b"250"), ("deliver-at", b"1100")], 1_250),
        ([("deliver-at", None)], 0),
        ([("deliver-at", b"")], 0),
        ([("delay", b"-1")], 0),
        ([("delay", b"1.5")], 0),
        ([("deliver-at", b"9" * 400)], 0),
    ],
)
def test_when_a_record_is_due(headers: list[tuple[str, bytes | None]], due_ms: int) -> None:
    assert due_at(Record(0, 1_000, None, b"", headers)) == due_ms
