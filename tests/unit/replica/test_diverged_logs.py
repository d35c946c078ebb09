"""How a follower comes back to its leader: logs that went different ways, and offsets the other does not have."""

from replica_sites import WALL_MS, Following, Site, asked, contents, elect, followed, pair, role, stored_bytes, write

from skidway.broker.partitions.partition import Partition
from skidway.errors import ErrorCode
from skidway.log import retention
from skidway.wire.schema.fetch import FetchRequest
from skidway.wire.schema.list_offsets import ListOffsetsRequest

# Logs that went different ways.


def test_what_only_the_old_leader_had_is_cut_on_its_return() -> None:
    """KIP-101: cut by epochs, not to the high watermark."""
    one, a, two, b = pair()
    write(a, b"m1", b"m2")
    followed(two, one, b).turn()
    write(a, b"only on a")
    elect(b, a, epoch=1, node_id=2)
    write(b, b"m3", b"m4")
    assert a.log.high_watermark == 0, "it was told of nothing, and still keeps m1 and m2"
    back = followed(one, two, a)
    back.turn()
    assert contents(a) == [b"m1", b"m2"]
    back.turn()
    assert contents(a) == [b"m1", b"m2", b"m3", b"m4"]
    assert stored_bytes(a) == stored_bytes(b)


def test_after_several_quick_changes_it_is_asked_again_until_the_logs_agree() -> None:
    """KIP-279: epochs that one of them never saw lie between those they have in common."""
    one, a, two, b = pair()
    write(a, b"0a")
    followed(two, one, b).turn()
    write(a, b"0b")  # epoch 0 ends at 2 here, at 1 there
    elect(b, a, epoch=1, node_id=2)
    write(b, b"1a")
    elect(a, b, epoch=2)
    write(a, b"2a")
    elect(b, a, epoch=3, node_id=2)
    write(b, b"3a")
    elect(a, b, epoch=4)
    write(a, b"4a", b"4b")
    assert contents(b) == [b"0a", b"1a", b"3a"]
    back = followed(two, one, b)
    back.turn()
    assert contents(b) == [b"0a", b"1a"], "3 is not known there, the newest common epoch may be 2, or older: 1"
    back.turn()
    assert contents(b) == [b"0a"]
    back.turn()
    back.turn()
    assert contents(b) == contents(a) == [b"0a", b"0b", b"2a", b"4a", b"4b"]
    assert stored_bytes(b) == stored_bytes(a)
    assert b.log.epochs.entries() == [(0, 0), (2, 2), (4, 3)]


def test_every_new_epoch_is_compared_also_after_a_cut_was_begun() -> None:
    """KAFKA-7164: a follower that hears of an epoch later must not take an earlier agreement for it."""
    one, a, two, b = pair()
    three = Site(3)
    c = three.host()
    write(a, b"x", b"y")
    followed(two, one, b).turn()
    elect(c, a, b, epoch=1, node_id=3)
    write(c, b"z")
    following_c = followed(two, three, b)
    under_way = following_c.ask()
    late = three.answer(under_way)
    elect(a, c, b, epoch=2)
    following_c.fetcher.leave(b)
    following_c.tell(late)
    assert contents(b) == [b"x", b"y"], "what c said is over"
    following_a = followed(two, one, b)
    following_a.catch_up()
    assert contents(b) == contents(a)


def test_an_answer_to_an_earlier_epoch_is_ignored() -> None:
    """KAFKA-7786."""
    one, leader, two, follower = pair()
    write(leader, b"a")
    following = followed(two, one, follower)
    late = one.answer(following.ask())
    elect(leader, follower, epoch=1)
    following.follow(follower)
    following.tell(late)
    assert contents(follower) == []
    assert asked(following.ask()) == [(0, 1, -1)]


def test_an_answer_after_the_log_has_changed_is_ignored() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b")
    following = followed(two, one, follower)
    following.turn()
    write(leader, b"c")
    late = one.answer(following.ask())
    follower.cut_to(1, WALL_MS)
    following.tell(late)
    assert contents(follower) == [b"a"]
    following.turn()
    assert contents(follower) == [b"a", b"b", b"c"]


def test_an_answer_that_tells_of_a_parting_raises_no_watermark() -> None:
    """KAFKA-14704: what would be committed is about to be cut."""
    one, a, two, b = pair()
    write(a, b"m1")
    followed(two, one, b).turn()
    write(a, b"only on a", b"this too")
    elect(b, a, epoch=1, node_id=2)
    write(b, b"m2", b"m3")
    b.advance(3)
    back = followed(one, two, a)
    back.turn()
    assert contents(a) == [b"m1"]
    assert a.log.high_watermark == 0
    back.turn()
    assert a.log.high_watermark == 3


def test_the_epoch_sent_is_that_of_the_last_record() -> None:
    """KAFKA-15510, and epochs in which this node led and wrote nothing."""
    one, a, two, b = pair()
    following = followed(two, one, b)
    assert asked(following.ask()) == [(0, 0, -1)]
    following.tell(None)
    write(a, b"x")
    following.catch_up()
    elect(b, a, epoch=1, node_id=2)
    elect(a, b, epoch=2)
    following = followed(two, one, b)
    assert asked(following.ask()) == [(1, 2, 0)]
    following.tell(None)
    following.catch_up(4)
    write(a, b"y")
    elect(a, b, epoch=3)
    following = followed(two, one, b)
    following.turn()
    reply = one.answer(following.ask())
    assert reply.responses[0].partitions[0].records == b"", "nothing more to say"
    following.tell(reply)
    write(a, b"z")
    following.turn()
    following = followed(two, one, b)
    assert asked(following.ask()) == [(3, 3, 3)]


def test_an_epoch_led_without_writing_is_no_hindrance_to_older_records() -> None:
    """Epoch 1 was led here with a shorter log than the next leader's, which never heard of it."""
    one, a, two, b = pair()
    write(a, b"x", b"y")
    elect(b, a, epoch=1, node_id=2)
    elect(a, b, epoch=2)
    followed(two, one, b).catch_up()
    assert contents(b) == [b"x", b"y"]
    assert b.log.epochs.entries() == [(0, 0)]


def test_committed_records_are_not_cut_for_a_leader_that_lost_them() -> None:
    one, a, two, b = pair()
    write(a, b"x", b"y")
    following = followed(two, one, b)
    following.turn()
    following.turn()
    assert b.log.high_watermark == 2
    a.cut_to(1, WALL_MS)
    elect(a, b, epoch=1)
    write(a, b"z")
    following.follow(b)
    following.catch_up()
    assert contents(b) == [b"x", b"y"]
    assert len(following.troubles) == 1
    assert "below the high watermark 2" in following.troubles[0]
    assert b not in following.fetcher


def test_after_an_unclean_election_even_committed_records_are_cut() -> None:
    one, a, two, b = pair()
    write(a, b"x", b"y")
    following = followed(two, one, b)
    following.turn()
    following.turn()
    a.cut_to(1, WALL_MS)
    elect(a, b, epoch=1, unclean=True)
    elect(a, b, epoch=2)
    write(a, b"z")
    following.follow(b)
    following.catch_up()
    assert contents(b) == contents(a) == [b"x", b"z"]
    assert not b.unclean, "now they agree, and it is over"


def test_a_cut_beside_a_sync_under_way() -> None:
    one, a, two, b = pair()
    write(a, b"x")
    followed(two, one, b).turn()
    write(a, b"only on a")
    ticket = a.begin_sync()
    assert ticket is not None
    elect(b, a, epoch=1, node_id=2)
    back = followed(one, two, a)
    back.turn()
    ticket.run()
    a.finish_sync(ticket)
    assert a.log.synced_offset <= a.log.end_offset == 1, "the sync vouches for nothing that was cut"
    write(b, b"y")
    back.catch_up()
    assert contents(a) == [b"x", b"y"]


# Out of range.


def test_a_follower_behind_the_leaders_start_begins_there() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b")
    following = followed(two, one, follower)
    following.turn()
    write(leader, b"c", b"d", b"e")
    leader.advance(5)
    retention.delete_before(leader.log, 4)
    following.turn()
    lookup = following.ask()
    assert isinstance(lookup, ListOffsetsRequest)
    following.tell(one.answer(lookup))
    assert (follower.log.start_offset, follower.log.end_offset) == (4, 4)
    following.catch_up()
    assert contents(follower) == [b"e"]
    assert follower.log.end_offset == leader.log.end_offset
    assert not following.troubles


def test_a_follower_ahead_of_a_leader_with_a_shorter_log_comes_back() -> None:
    one, a, two, b = pair()
    write(a, b"x")
    followed(two, one, b).turn()
    write(a, b"y", b"z")
    elect(b, a, epoch=1, node_id=2)
    back = followed(one, two, a)
    back.catch_up()
    assert contents(a) == [b"x"]


def test_an_empty_follower_past_the_leaders_end_begins_anew() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a")
    follower.restart_at(7, WALL_MS)
    followed(two, one, follower).catch_up()
    assert contents(follower) == [b"a"]
    assert stored_bytes(follower) == stored_bytes(leader)


def test_a_leader_that_refuses_an_offset_it_has_is_asked_again_slowly() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a")
    following = followed(two, one, follower)
    following.turn()
    for _ in range(10):
        request = following.ask()
        while request is None:
            following.pass_time(1)
            request = following.ask()
        reply = one.answer(request)
        if isinstance(request, FetchRequest):
            reply.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        following.tell(reply)
    assert contents(follower) == [b"a"], "nothing was thrown away for it"
    assert len(following.troubles) == 1


def test_a_damaged_replica_begins_anew_from_the_leader() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b")
    followed(two, one, follower).turn()
    ticket = follower.begin_checkpoint()
    assert ticket is not None
    ticket.run()
    follower.finish_sync(ticket)
    two.disk.open("t-0/00000000000000000000.log").truncate(70)
    damaged = two.host_again(follower, recovery_point=2)
    assert damaged.log.quarantined
    damaged.follow(role(1, 1, replicas=[1, 2]), 0)
    leader.lead(role(1, 1, replicas=[1, 2]), 0)
    following = followed(two, one, damaged)
    following.catch_up()
    assert contents(damaged) == [b"a", b"b"]
    assert stored_bytes(damaged) == stored_bytes(leader)


def below_the_start() -> tuple[Site, Partition, Partition, Following]:
    """An empty follower of a log that no longer begins at 0: it has to ask where it does."""
    one, leader, two, follower = pair()
    write(leader, b"a", b"b")
    leader.advance(2)
    retention.delete_before(leader.log, 1)
    following = followed(two, one, follower)
    following.turn()
    return one, leader, follower, following


def test_a_leader_that_does_not_say_where_its_log_begins_is_asked_again() -> None:
    """Also when there is nothing else to ask it for, which would bring the question up again."""
    _, leader, follower, following = below_the_start()
    waits = []
    for _ in range(4):
        assert isinstance(following.ask(), ListOffsetsRequest)
        following.tell(None)
        deadline_ms = following.fetcher.deadline_ms
        assert deadline_ms is not None
        waits.append(deadline_ms - following.now_ms)
        following.now_ms = deadline_ms
    assert waits == sorted(waits)
    assert waits[0] > 0
    following.catch_up()
    assert contents(follower) == contents(leader)


def test_a_leader_that_cannot_say_yet_where_its_log_begins_is_left_alone_for_a_while() -> None:
    one, leader, follower, following = below_the_start()
    reply = one.answer(following.ask())
    reply.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    following.tell(reply)
    assert following.ask() is None
    assert (following.fetcher.deadline_ms or 0) > following.now_ms
    following.catch_up()
    assert contents(follower) == contents(leader)
