"""How a follower keeps up with its leader, and how it comes back to it after the logs went different ways."""

from dataclasses import replace
from random import Random

import pytest
from replica_sites import WALL_MS, Following, Site, contents, elect, role, stored_bytes, write

from skidway.broker.partition import Partition
from skidway.errors import ErrorCode
from skidway.replica.fetcher import FetchSettings
from skidway.replica.throttle import Throttle
from skidway.wire.schema.fetch import FetchRequest
from skidway.wire.schema.list_offsets import ListOffsetsRequest


def pair(**configs: str) -> tuple[Site, Partition, Site, Partition]:
    """Node 1 leads `t-0` in epoch 0, node 2 follows."""
    one, two = Site(1), Site(2)
    leader, follower = one.host(**configs), two.host(**configs)
    elect(leader, follower, epoch=0)
    return one, leader, two, follower


def followed(site: Site, leader: Site, *partitions: Partition) -> Following:
    return Following(site, leader).follow(*partitions)


def asked(request: object) -> list[tuple[int, int, int]]:
    """(fetch offset, leader epoch, epoch of the last record) of every partition a request names."""
    assert isinstance(request, FetchRequest)
    return [
        (one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch)
        for topic in request.topics
        for one in topic.partitions
    ]


# Keeping up.


def test_a_follower_holds_what_the_leader_holds_byte_for_byte() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b", b"c")
    following = followed(two, one, follower)
    assert following.turn()
    write(leader, b"d")
    assert following.turn()
    assert contents(follower) == [b"a", b"b", b"c", b"d"]
    assert stored_bytes(follower) == stored_bytes(leader)


def test_its_watermark_is_the_leaders_but_never_past_its_own_end() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b")
    following = followed(two, one, follower)
    following.turn()
    assert (follower.log.end_offset, follower.log.high_watermark) == (2, 0), "the leader does not know yet"
    write(leader, b"c")
    following.turn()
    assert leader.log.high_watermark == 2
    assert (follower.log.end_offset, follower.log.high_watermark) == (3, 2)
    request = following.ask()
    reply = one.answer(request)
    reply.responses[0].partitions[0].high_watermark = 100
    following.tell(reply)
    assert follower.log.high_watermark == 3


def test_one_request_at_a_time() -> None:
    one, _leader, two, follower = pair()
    following = followed(two, one, follower)
    request = following.ask()
    assert following.ask() is None
    assert following.fetcher.deadline_ms is None
    following.tell(one.answer(request))
    assert following.ask() is not None


def test_what_the_leader_deleted_goes_here_too_once_it_is_committed() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b", b"c")
    following = followed(two, one, follower)
    following.turn()
    following.turn()
    leader.log.delete_records_before(2)
    following.turn()
    assert follower.log.start_offset == 2
    assert asked(following.ask()) == [(3, 0, 0)], "and the leader hears of it"


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
    leader.log.delete_records_before(4)
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


# Sessions, and leaders that do not answer.


def test_after_the_first_request_only_changes_are_named() -> None:
    one, two = Site(1), Site(2)
    leaders = [one.host("t", index) for index in range(3)]
    followers = [two.host("t", index) for index in range(3)]
    for leader, follower in zip(leaders, followers, strict=True):
        elect(leader, follower, epoch=0)
    following = followed(two, one, *followers)
    first = following.ask()
    assert len(asked(first)) == 3
    following.tell(one.answer(first))
    write(leaders[1], b"a")
    second = following.ask()
    assert asked(second) == []
    following.tell(one.answer(second))
    third = following.ask()
    assert (third.session_id != 0, third.session_epoch) == (True, 2)
    assert asked(third) == [(1, 0, 0)]


@pytest.mark.parametrize("keeps_sessions", [True, False])
def test_a_lost_session_is_begun_anew(keeps_sessions: bool) -> None:
    one, leader, two, follower = pair()
    one.keeps_sessions = keeps_sessions
    following = followed(two, one, follower)
    following.turn()
    following.turn()
    one.sessions.sessions.clear()
    following.turn()
    write(leader, b"a")
    request = following.ask()
    assert request.session_epoch == 0, "at once, and with everything"
    following.tell(one.answer(request))
    assert contents(follower) == [b"a"]


def test_a_session_that_is_refused_again_and_again_is_asked_for_more_slowly() -> None:
    one, _leader, two, follower = pair()
    following = followed(two, one, follower)
    following.turn()
    waits = []
    for _ in range(5):
        request = following.ask()
        reply = one.answer(request)
        reply.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        following.tell(reply)
        before = following.now_ms
        following.now_ms = max(before, following.fetcher.deadline_ms or 0)
        waits.append(following.now_ms - before)
    assert waits[0] == 0
    assert waits[1:] == sorted(waits[1:])
    assert waits[-1] > 0


def test_a_leader_that_does_not_answer_is_asked_ever_more_rarely_and_from_the_beginning() -> None:
    one, _leader, two, follower = pair()
    following = followed(two, one, follower)
    following.turn()
    waits = []
    for _ in range(9):
        assert following.ask() is not None
        following.tell(None)
        assert following.ask() is None
        deadline_ms = following.fetcher.deadline_ms
        assert deadline_ms is not None
        waits.append(deadline_ms - following.now_ms)
        following.now_ms = deadline_ms
    assert waits == sorted(waits)
    assert waits[-1] == FetchSettings().retry_ms_max
    assert following.ask().session_epoch == 0


def test_partitions_that_come_and_go_while_a_request_is_under_way() -> None:
    one, two = Site(1), Site(2)
    leaders = {name: one.host(name) for name in "abc"}
    followers = {name: two.host(name) for name in "abc"}
    for name in "abc":
        elect(leaders[name], followers[name], epoch=0)
        write(leaders[name], name.encode())
    following = followed(two, one, followers["a"], followers["b"])
    late = one.answer(following.ask())
    following.fetcher.leave(followers["a"])
    following.follow(followers["c"])
    following.tell(late)
    assert contents(followers["a"]) == [], "not its fetcher's any more"
    request = following.ask()
    assert [bytes(topic.topic_id).strip(b"\0") for topic in request.topics] == [b"c", b"b"]
    assert [bytes(topic.topic_id).strip(b"\0") for topic in request.forgotten_topics_data] == [b"a"]
    following.tell(one.answer(request))
    assert contents(followers["b"]) == [b"b"]
    assert contents(followers["c"]) == [b"c"]
    following.fetcher.leave(followers["b"])
    following.fetcher.leave(followers["c"])
    assert following.ask() is None
    assert following.fetcher.deadline_ms is None


# A promise is kept before it is made.


def test_with_flush_sync_a_position_is_sent_after_the_sync() -> None:
    one, leader, two, follower = pair(flush="sync")
    write(leader, b"a")
    following = followed(two, one, follower)
    following.turn()
    assert contents(follower) == [b"a"]
    assert following.ask() is None
    following.pass_time(1000)
    assert following.ask() is None, "however long it takes"
    assert following.fetcher.deadline_ms is None
    two.sync()
    following.fetcher.on_stored(follower)
    assert asked(following.ask()) == [(1, 0, 0)]


def test_a_slow_sync_does_not_hold_up_other_partitions() -> None:
    one, two = Site(1), Site(2)
    slow, quick = one.host("slow", flush="sync"), one.host("quick")
    slow_copy, quick_copy = two.host("slow", flush="sync"), two.host("quick")
    elect(slow, slow_copy, epoch=0)
    elect(quick, quick_copy, epoch=0)
    write(slow, b"a")
    following = followed(two, one, slow_copy, quick_copy)
    following.turn()
    assert following.ask() is None, "most syncs are quick, so it waits a little for all to go into one request"
    following.now_ms = following.fetcher.deadline_ms or 0
    write(quick, b"b")
    request = following.ask()
    assert request.max_wait_ms < FetchSettings().wait_ms
    assert [list(topic.partitions) for topic in request.forgotten_topics_data] == [[0]]
    following.tell(one.answer(request))
    assert contents(quick_copy) == [b"b"]
    two.sync()
    following.fetcher.on_stored(slow_copy)
    request = following.ask()
    assert request.max_wait_ms == FetchSettings().wait_ms
    assert sorted(asked(request)) == [(1, 0, 0), (1, 0, 0)]


def test_the_next_request_leaves_with_the_last_sync() -> None:
    one, two = Site(1), Site(2)
    leaders = [one.host("t", index, flush="sync") for index in range(2)]
    followers = [two.host("t", index, flush="sync") for index in range(2)]
    for leader, follower in zip(leaders, followers, strict=True):
        elect(leader, follower, epoch=0)
        write(leader, b"a")
    following = followed(two, one, *followers)
    following.turn()
    first, second = two.turn.take_unsynced()
    for partition in (first, second):
        assert following.ask() is None
        ticket = partition.begin_sync()
        assert ticket is not None
        ticket.run()
        partition.finish_sync(ticket)
        following.fetcher.on_stored(partition)
    assert asked(following.ask()) == [(1, 0, 0), (1, 0, 0)]


# What can go wrong with one partition.


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_refused_partition_rests_and_the_others_go_on(error: ErrorCode) -> None:
    one, two = Site(1), Site(2)
    leaders = {name: one.host(name) for name in "ab"}
    followers = {name: two.host(name) for name in "ab"}
    for name in "ab":
        elect(leaders[name], followers[name], epoch=0)
        write(leaders[name], name.encode())
    following = followed(two, one, *followers.values())
    reply = one.answer(following.ask())
    refused = reply.responses[0].partitions[0]
    refused.error_code, refused.records = error, b""
    following.tell(reply)
    request = following.ask()
    assert [bytes(topic.topic_id).strip(b"\0") for topic in request.forgotten_topics_data] == [b"a"]
    following.tell(one.answer(request))
    assert contents(followers["b"]) == [b"b"]
    following.pass_time(1000)
    following.turn()
    assert contents(followers["a"]) == [b"a"]


def test_a_new_epoch_ends_the_rest() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a")
    leader.lead(role(1, 1, replicas=[1, 2]), 0)
    following = followed(two, one, follower)
    following.turn()
    assert following.ask() is None, "fenced: the metadata will tell"
    follower.follow(role(1, 1, replicas=[1, 2]), 0)
    following.follow(follower)
    assert following.turn()
    assert contents(follower) == [b"a"]


def test_a_bad_batch_is_told_once_and_fetched_again() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a", b"b")
    following = followed(two, one, follower)
    for _ in range(3):
        reply = one.answer(following.ask())
        data = reply.responses[0].partitions[0]
        spoiled = bytearray(data.records)
        spoiled[-1] ^= 1
        data.records = memoryview(spoiled)
        following.tell(reply)
        assert contents(follower) == []
        assert following.ask() is None
        following.pass_time(FetchSettings().corrupt_retry_ms)
    following.turn()
    assert contents(follower) == [b"a", b"b"]
    assert len(following.troubles) == 1
    assert "checksum" in following.troubles[0]


def test_a_full_disk_is_told_once_and_tried_again() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a" * 2000)
    two.disk.capacity = two.disk.used()
    following = followed(two, one, follower)
    for _ in range(3):
        assert following.turn()
        following.pass_time(2000)
    assert contents(follower) == []
    assert len(following.troubles) == 1
    two.disk.capacity = None
    following.turn()
    assert contents(follower) == [b"a" * 2000]


def test_a_partition_that_takes_no_writes_is_left_alone() -> None:
    one, leader, two, follower = pair()
    write(leader, b"a")
    following = followed(two, one, follower)
    request = following.ask()
    follower.fail("the disk is gone")
    following.tell(one.answer(request))
    assert follower not in following.fetcher
    assert following.ask() is None
    assert len(following.troubles) == 1


@pytest.mark.parametrize("seed", range(30))
def test_whoever_leads_in_the_end_all_logs_become_its_own(seed: int) -> None:
    """Leaders change at any moment, copies are behind and ahead; nothing below a follower's watermark is ever cut."""
    random = Random(seed)
    sites = [Site(1), Site(2), Site(3)]
    flush = random.choice(["os", "sync"])
    copies = [site.host(flush=flush) for site in sites]
    followings: dict[int, Following] = {}
    number = 0
    leader = 0
    for epoch in range(12):
        # As an election from the in-sync set would: nobody who lacks what was committed.
        committed = max(copy.log.high_watermark for copy in copies)
        leader = random.choice([i for i in range(3) if copies[i].stored_offset >= committed])
        named = role(leader + 1, epoch)
        for index, copy in enumerate(copies):
            (copy.lead if index == leader else copy.follow)(named, 0)
        followings = {i: followed(sites[i], sites[leader], copies[i]) for i in range(3) if i != leader}
        for _ in range(random.randrange(25)):
            if random.random() < 0.4:
                write(copies[leader], b"%d" % number)
                number += 1
            elif random.random() < 0.3:
                sites[random.randrange(3)].sync()
            else:
                following = followings[random.choice(list(followings))]
                before = contents(following.fetcher_copy(), committed=True)
                if not following.turn():
                    following.pass_time(1000)
                assert contents(following.fetcher_copy(), committed=True)[: len(before)] == before
    for _ in range(3):
        for following in followings.values():
            following.catch_up(60)
            sites[leader].sync()
    assert contents(copies[0]) == contents(copies[1]) == contents(copies[2])
    assert stored_bytes(copies[0]) == stored_bytes(copies[1]) == stored_bytes(copies[2])
    assert len({copy.log.high_watermark for copy in copies}) == 1
    assert not [trouble for following in followings.values() for trouble in following.troubles]


# Throttles.


def test_a_replica_that_is_held_to_a_rate_rests_and_goes_on() -> None:
    one, two = Site(1), Site(2)
    leader = one.host()
    follower = two.host(follower_replication_throttled_replicas="*")
    elect(leader, follower, epoch=0)
    follower.follow(replace(follower.role, in_sync=[1]), WALL_MS)
    follower.follower_throttle = Throttle(100)
    write(leader, b"x" * 500)
    following = followed(two, one, follower)
    assert following.turn()
    assert contents(follower) == [b"x" * 500]
    write(leader, b"y")
    assert not following.turn(), "it took more than its share"
    deadline_ms = following.fetcher.deadline_ms
    assert deadline_ms is not None
    following.pass_time(deadline_ms - following.now_ms)
    assert following.turn()
    assert contents(follower) == [b"x" * 500, b"y"]
