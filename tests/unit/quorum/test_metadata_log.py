"""The metadata log: what is in it after an election, a fetch, a crash; and what it refuses."""

from collections.abc import Callable
from random import Random

import pytest
from metadata_logs import append, member, open_log, sync, voter_set

from skidway.errors import CorruptMessage
from skidway.log.durability import checkpointing
from skidway.quorum.control import decode_voters, read_controls
from skidway.quorum.log import load_voter_history
from skidway.quorum.messages import EpochEnd
from skidway.quorum.news import MetadataCut, TailDropped
from skidway.records.batch import iter_headers
from skidway.records.control import ControlType
from skidway.sim.world.disk import SimDisk


def test_nothing_is_committed_when_it_is_opened() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, 1, b"a", b"b")
    sync(log)
    log.log.advance_high_watermark(2)
    checkpointing.save(log.log)
    log.log.close()
    again = open_log(disk)
    assert (again.log.high_watermark, again.end_offset, again.synced_offset) == (0, 2, 2)
    assert again.log.read(0, 1000) is None
    again.log.advance_high_watermark(2)
    assert again.log.read(0, 1000) is not None


def test_an_election_is_written_as_kraft_does() -> None:
    log = open_log(SimDisk())
    assert log.append_leader_change(member(1), voter_set(1, 2, 3), [member(1), member(3)], 4) == 0
    (_, header), *rest = iter_headers(log.read(0))
    assert not rest
    assert header.is_control
    assert header.partition_leader_epoch == 4
    [(offset, kind, value)] = read_controls(log.read(0))
    assert (offset, kind) == (0, ControlType.LEADER_CHANGE)
    assert value[:6] == bytes([0, 1, 0, 0, 0, 1])  # version 1, leader 1


def test_voters_are_found_again_with_their_addresses() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append_leader_change(member(1), voter_set(1, 2), [member(1)], 1)
    append(log, 1, b"x" * 3000)
    first = log.append_voters(voter_set(1, 2, 3), 1)
    append(log, 1, *[b"y" * 100] * 30)
    second = log.append_voters(voter_set(2, 3), 1)
    sync(log)
    history = load_voter_history(open_log(disk), voter_set(1, 2))
    assert (history.latest, history.latest_offset) == (voter_set(2, 3), second)
    assert history.at(second) == voter_set(1, 2, 3)
    assert history.at(first) == voter_set(1, 2)
    found = history.latest.find(3)
    assert found is not None
    assert (found.host, found.port) == ("host3", 9003)


def test_what_was_fetched_is_the_same_byte_for_byte() -> None:
    leader, follower = open_log(SimDisk()), open_log(SimDisk())
    leader.append_leader_change(member(1), voter_set(1, 2), [member(1)], 3)
    append(leader, 3, b"a", b"b")
    at = leader.append_voters(voter_set(1), 5)
    assert follower.append_fetched(leader.read(0)) == [(at, voter_set(1))]
    assert follower.read(0) == leader.read(0)
    assert (follower.end_offset, follower.last_epoch) == (4, 5)


def test_epochs_end_where_the_next_begins() -> None:
    log = open_log(SimDisk())
    assert log.end_of_epoch(3) == EpochEnd(0, 0)
    for epoch in (2, 2, 5):
        append(log, epoch, b"a")
    assert log.last_epoch == 5
    assert [log.end_of_epoch(epoch) for epoch in (1, 2, 4, 5, 9)] == [
        EpochEnd(0, 0),
        EpochEnd(2, 2),
        EpochEnd(2, 2),
        EpochEnd(5, 3),
        EpochEnd(5, 3),
    ]
    log.truncate_to(2)
    assert (log.end_offset, log.last_epoch) == (2, 2)


def test_what_a_leader_has_cut_off_is_said_with_from_to_and_why() -> None:
    log = open_log(SimDisk())
    said: list[MetadataCut] = []
    log.on_cut = said.append
    for epoch in (2, 2, 5):
        append(log, epoch, b"a")
    log.truncate_to(3)
    assert said == [], "nothing was cut"
    log.truncate_to(1)
    assert said == [TailDropped(1, 3)]


Damage = Callable[[bytearray, int], None]


def flip_a_bit(data: bytearray, second: int) -> None:
    data[-1] ^= 1


def cut_off(data: bytearray, second: int) -> None:
    del data[-1:]


def leave_a_gap(data: bytearray, second: int) -> None:
    data[second + 7] += 1


def go_back_in_epochs(data: bytearray, second: int) -> None:
    data[second + 15] -= 1


@pytest.mark.parametrize("damage", [flip_a_bit, cut_off, leave_a_gap, go_back_in_epochs])
def test_damage_in_the_second_batch_keeps_the_first_out_too(damage: Damage) -> None:
    leader, follower = open_log(SimDisk()), open_log(SimDisk())
    append(leader, 3, b"a")
    second = len(leader.read(0))
    append(leader, 3, b"b")
    data = bytearray(leader.read(0))
    damage(data, second)
    with pytest.raises(CorruptMessage):
        follower.append_fetched(data)
    assert follower.end_offset == 0


def test_an_empty_set_of_voters_is_refused() -> None:
    with pytest.raises(CorruptMessage):
        decode_voters(bytes([0, 0, 1, 0]))


def test_a_crash_takes_only_what_was_not_synced() -> None:
    for seed in range(20):
        disk = SimDisk()
        log = open_log(disk)
        append(log, 1, b"kept")
        log.append_voters(voter_set(1), 1)
        sync(log)
        append(log, 2, b"perhaps" * 100)
        disk.crash(Random(seed))
        again = open_log(disk)
        assert again.end_offset in (2, 3)
        assert load_voter_history(again, voter_set(1, 2)).latest == voter_set(1)
