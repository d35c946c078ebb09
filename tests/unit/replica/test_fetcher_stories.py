"""How a follower keeps up with its leader: requests, sessions, promises, and what goes wrong with one partition."""

from random import Random

import pytest
from msgspec.structs import replace
from replica_sites import WALL_MS, Following, Site, asked, contents, elect, followed, pair, role, stored_bytes, write

from skidway.broker.partitions.partition import Partition
from skidway.errors import ErrorCode
from skidway.log import retention
from skidway.log.durability import checkpointing
from skidway.replica.fetcher import FetchSettings
from skidway.replica.throttle import Throttle

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
    retention.delete_before(leader.log, 2)
    following.turn()
    assert follower.log.start_offset == 2
    assert following.fetcher.take_moved() == [follower], "it is to be saved"
    request = following.ask()
    assert asked(request) == [], "a crash would undo it: the leader does not hear of it yet"
    ticket = checkpointing.begin(follower.log)
    assert ticket is not None
    ticket.run()
    follower.log.finish_sync(ticket)
    following.tell(one.answer(request))
    request = following.ask()
    assert asked(request) == [(3, 0, 0)]
    assert request.topics[0].partitions[0].log_start_offset == 2, "now it does"


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
    one.sessions.open.clear()
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
        assert isinstance(partition, Partition)
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
