"""TxnOffsetCommit: offsets that wait for the transaction's end, who may commit them, and who may not read meanwhile."""

from collections.abc import Iterator

import pytest
from group_calls import ClassicMember, ConsumerMember, commit, committed, delete_group, stable_group
from raw import Body, Connection, MakeTopic
from transaction_calls import (
    ABORT,
    BUMPING,
    COMMIT,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    STEADY,
    TRANSACTION_ABORTABLE,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
    NewProducer,
    Place,
    RawProducer,
    new_id,
    places_of,
    stable,
    visible,
)

from waiting import eventually


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[ClassicMember]:
    with ClassicMember(bootstrap, group) as joined:
        stable_group([joined])
        yield joined


@pytest.mark.parametrize("ends", [COMMIT, ABORT])
def test_offsets_wait_for_the_end(producer: RawProducer, group: str, topic: str, ends: bool) -> None:
    wire = producer.wire
    assert commit(wire, group, topic, {0: 3}) == {0: NONE}
    producer.send_offsets(group, topic, {0: 10})
    assert committed(wire, group, topic, [0]) == {0: 3}
    assert stable(wire, group, topic) == (UNSTABLE_OFFSET_COMMIT, -1)
    producer.finish(ends)
    expected = 10 if ends else 3
    assert stable(wire, group, topic) == (NONE, expected)
    assert committed(wire, group, topic, [0]) == {0: expected}


def test_only_what_is_pending_is_unstable(producer: RawProducer, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    commit(producer.wire, group, topic, {0: 1, 1: 1})
    producer.send_offsets(group, topic, {0: 10})
    assert stable(producer.wire, group, topic, 0) == (UNSTABLE_OFFSET_COMMIT, -1)
    assert stable(producer.wire, group, topic, 1) == (NONE, 1)
    producer.finish(COMMIT)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_every_version_that_asks_for_stable_offsets(
    producer: RawProducer, group: str, topic: str, version: int
) -> None:
    producer.send_offsets(group, topic, {0: 10})
    if version < 8:
        asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": True}
        ((one,),) = [t["partitions"] for t in producer.wire.call("OffsetFetch", version, asked)["topics"]]
        assert (one["error_code"], one["committed_offset"]) == (UNSTABLE_OFFSET_COMMIT, -1)
    else:
        assert stable(producer.wire, group, topic, version=version) == (UNSTABLE_OFFSET_COMMIT, -1)
    producer.finish(COMMIT)


@pytest.mark.parametrize("version", range(5))
def test_old_versions(wire: Connection, group: str, topic: str, version: int) -> None:
    producer = RawProducer(wire, STEADY, new_id()).init()
    refused = INVALID_TXN_STATE if version <= 3 else TRANSACTION_ABORTABLE
    assert producer.offer_offsets(group, topic, {0: 7}, version=version) == {0: refused}
    assert producer.add_offsets(group) == NONE
    assert producer.offer_offsets(group, topic, {0: 7}, version=version) == {0: NONE}
    producer.finish(COMMIT)
    assert committed(wire, group, topic, [0]) == {0: 7}


def test_new_versions_add_the_group_themselves(wire: Connection, group: str, topic: str) -> None:
    producer = RawProducer(wire, BUMPING, new_id()).init()
    assert producer.offer_offsets(group, topic, {0: 7}) == {0: NONE}
    ((added, _),) = places_of(producer.describe())
    assert added == "__consumer_offsets"
    producer.finish(COMMIT)
    assert committed(wire, group, topic, [0]) == {0: 7}


def test_ids_that_do_not_belong_together(producer: RawProducer, group: str, topic: str) -> None:
    producer.send_offsets(group, topic, {0: 1})
    stranger = RawProducer(producer.wire, producer.generation, new_id())
    stranger.producer_id, stranger.epoch = producer.producer_id + 1, 0
    assert stranger.offer_offsets(group, topic, {0: 7}) == {0: INVALID_PRODUCER_ID_MAPPING}
    producer.finish(COMMIT)
    assert committed(producer.wire, group, topic, [0]) == {0: 1}


def test_a_topic_that_is_not_there(producer: RawProducer, group: str) -> None:
    if producer.generation is STEADY:
        producer.add_offsets(group)
    assert producer.offer_offsets(group, "no-such-topic", {0: 7}) == {0: UNKNOWN_TOPIC_OR_PARTITION}


def test_a_zombie_commits_nothing(new_producer: NewProducer, group: str, topic: str) -> None:
    zombie = new_producer()
    zombie.send_offsets(group, topic, {0: 5})
    newcomer = new_producer(zombie.id)
    assert zombie.offer_offsets(group, topic, {0: 6}) == {0: INVALID_PRODUCER_EPOCH}
    assert stable(newcomer.wire, group, topic) == (NONE, -1)
    newcomer.send_offsets(group, topic, {0: 8})
    newcomer.finish(COMMIT)
    assert stable(newcomer.wire, group, topic) == (NONE, 8)


def test_the_last_offset_of_a_transaction_counts(producer: RawProducer, group: str, topic: str) -> None:
    for offset in (5, 9, 7):
        producer.send_offsets(group, topic, {0: offset})
    producer.finish(COMMIT)
    assert committed(producer.wire, group, topic, [0]) == {0: 7}


def test_a_later_plain_commit_stays(producer: RawProducer, group: str, topic: str) -> None:
    producer.send_offsets(group, topic, {0: 5})
    assert commit(producer.wire, group, topic, {0: 20}) == {0: NONE}
    producer.finish(COMMIT)
    assert stable(producer.wire, group, topic) == (NONE, 20)


def test_two_producers_in_one_group(new_producer: NewProducer, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    first, second = new_producer(), new_producer()
    wire = first.wire
    first.send_offsets(group, topic, {0: 1})
    second.send_offsets(group, topic, {0: 2, 1: 2})
    second.finish(COMMIT)
    # The offset of the first is still pending.
    assert stable(wire, group, topic, 0) == (UNSTABLE_OFFSET_COMMIT, -1)
    assert stable(wire, group, topic, 1) == (NONE, 2)
    first.finish(COMMIT)
    # The record of the second is the later one.
    assert committed(wire, group, topic, [0, 1]) == {0: 2, 1: 2}


def test_offsets_and_records_together(producer: RawProducer, group: str, place: Place) -> None:
    for number in range(4):
        producer.write(place, b"%d" % number)
        producer.send_offsets(group, place[0], {0: number + 1})
        producer.finish(number % 2 == 0)
    assert visible(producer.wire, place) == [b"0", b"2"]
    assert stable(producer.wire, group, place[0]) == (NONE, 3)


# --------------------------------------------------------------------------------------------------- who is a member


def test_a_member_says_who_it_is(producer: RawProducer, member: ClassicMember, topic: str) -> None:
    me: Body = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
    producer.send_offsets(member.group, topic, {0: 4}, **me)
    producer.finish(COMMIT)
    assert committed(producer.wire, member.group, topic, [0]) == {0: 4}


def test_a_member_of_before_is_refused(producer: RawProducer, member: ClassicMember, topic: str) -> None:
    if producer.generation is STEADY:
        producer.add_offsets(member.group)
    stale: Body = {"member_id": member.id, "generation_id_or_member_epoch": member.generation - 1}
    assert producer.offer_offsets(member.group, topic, {0: 4}, **stale) == {0: ILLEGAL_GENERATION}
    stranger: Body = {"member_id": "nobody", "generation_id_or_member_epoch": member.generation}
    assert producer.offer_offsets(member.group, topic, {0: 4}, **stranger) == {0: UNKNOWN_MEMBER_ID}
    instance: Body = {
        "member_id": member.id,
        "group_instance_id": "i",
        "generation_id_or_member_epoch": member.generation,
    }
    assert producer.offer_offsets(member.group, topic, {0: 4}, **instance) == {0: UNKNOWN_MEMBER_ID}
    assert stable(producer.wire, member.group, topic) == (NONE, -1)


def test_a_static_member_that_was_replaced_is_fenced(
    producer: RawProducer, bootstrap: str, group: str, topic: str
) -> None:
    with (
        ClassicMember(bootstrap, group, instance="i") as first,
        ClassicMember(bootstrap, group, instance="i") as second,
    ):
        stable_group([first])
        second.join()
        if producer.generation is STEADY:
            producer.add_offsets(group)
        told: Body = {
            "member_id": first.id,
            "group_instance_id": "i",
            "generation_id_or_member_epoch": first.generation,
        }
        assert producer.offer_offsets(group, topic, {0: 4}, **told) == {0: FENCED_INSTANCE_ID}


def test_a_producer_that_says_nothing_of_a_member_passes(
    producer: RawProducer, member: ClassicMember, topic: str
) -> None:
    producer.send_offsets(member.group, topic, {0: 4})
    producer.finish(COMMIT)
    assert committed(producer.wire, member.group, topic, [0]) == {0: 4}


def test_a_generation_of_a_group_that_is_not_there(producer: RawProducer, group: str, topic: str) -> None:
    if producer.generation is STEADY:
        producer.add_offsets(group)
    told: Body = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert producer.offer_offsets(group, topic, {0: 4}, **told) == {0: ILLEGAL_GENERATION}


def test_members_of_the_newer_protocol(producer: RawProducer, group: str, topic: str) -> None:
    member = ConsumerMember(producer.wire, group, [topic])
    member.join()
    member.reconcile()
    if producer.generation is STEADY:
        producer.add_offsets(group)
    stale: Body = {"member_id": member.id, "generation_id_or_member_epoch": member.epoch + 1}
    (code,) = producer.offer_offsets(group, topic, {0: 4}, **stale).values()
    assert code == ILLEGAL_GENERATION
    stranger: Body = {"member_id": "nobody", "generation_id_or_member_epoch": member.epoch}
    assert producer.offer_offsets(group, topic, {0: 4}, **stranger) == {0: UNKNOWN_MEMBER_ID}
    me: Body = {"member_id": member.id, "generation_id_or_member_epoch": member.epoch}
    producer.send_offsets(group, topic, {0: 4}, **me)
    producer.finish(COMMIT)
    assert committed(producer.wire, group, topic, [0]) == {0: 4}


def test_a_group_that_is_deleted_loses_what_is_pending(producer: RawProducer, group: str, topic: str) -> None:
    commit(producer.wire, group, topic, {0: 1})
    producer.send_offsets(group, topic, {0: 9})
    assert delete_group(producer.wire, group) == NONE
    producer.finish(COMMIT)
    eventually(lambda: stable(producer.wire, group, topic) == (NONE, -1))
