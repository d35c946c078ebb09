"""`quorum-state`: epoch and vote survive any crash; what cannot be read is not guessed."""

import json
from random import Random

import pytest
from metadata_logs import member

from skidway.errors import StorageError
from skidway.quorum.state_file import StateFile
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import Member
from skidway.sim.world.disk import Crashed, SimDisk

PATH = "__cluster_metadata-0/quorum-state"


def test_it_is_written_as_kafka_does() -> None:
    disk = SimDisk()
    StateFile(disk).save(Remembered(7, 2, member(2)))
    assert json.loads(disk.read(PATH)) == {
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": 2,
        "votedDirectoryId": "AgICAgICAgICAgICAgICAg",
        "data_version": 1,
    }
    assert StateFile(disk).load() == Remembered(7, 2, member(2))


def test_a_node_that_never_voted_remembers_nothing() -> None:
    assert StateFile(SimDisk()).load() == Remembered()
    disk = SimDisk()
    StateFile(disk).save(Remembered(3))
    assert StateFile(disk).load() == Remembered(3)


def test_the_older_version_is_read() -> None:
    disk = SimDisk()
    disk.make_directory("__cluster_metadata-0")
    old = {"clusterId": "", "leaderId": -1, "leaderEpoch": 2, "votedId": 3, "appliedOffset": 0, "currentVoters": []}
    disk.write_atomic(PATH, json.dumps(old | {"data_version": 0}).encode())
    assert StateFile(disk).load() == Remembered(2, -1, Member(3))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"leaderId":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":3,"votedDirectoryId":"AgIC","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":3,"votedDirectoryId":"!","data_version":1}',
        b" " * 100_000,
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    disk = SimDisk()
    disk.make_directory("__cluster_metadata-0")
    disk.write_atomic(PATH, data)
    with pytest.raises(StorageError, match="quorum-state"):
        StateFile(disk).load()


@pytest.mark.parametrize("lost", [PATH, "quorum-state"])
@pytest.mark.parametrize("damage", ["removed", "damaged", "old"])
def test_one_of_the_two_files_is_enough(lost: str, damage: str) -> None:
    disk = SimDisk()
    file = StateFile(disk)
    file.save(Remembered(6, -1, member(1)))
    old = disk.read(lost)
    file.save(Remembered(7, -1, member(2)))
    if damage == "removed":
        disk.remove(lost)
    else:
        disk.write_atomic(lost, b"{" if damage == "damaged" else old)
    again = StateFile(disk)
    assert again.load() == Remembered(7, -1, member(2)), "it must not vote for another in epoch 7"
    is_told = damage == "damaged" or (damage == "removed" and lost == PATH)
    assert bool(again.trouble) == is_told


def test_a_vote_never_regresses_whenever_the_machine_stops() -> None:
    states = [Remembered(epoch, -1, member(1 + epoch % 3)) for epoch in range(1, 6)]
    for crash_at in range(1, 60):
        for seed in range(3):
            disk = SimDisk()
            disk.crash_at = crash_at
            saved = 0
            try:
                file = StateFile(disk)
                for number, state in enumerate(states, 1):
                    file.save(state)
                    saved = number
            except Crashed:
                pass
            disk.crash(Random(seed))
            found = StateFile(disk).load()
            # What was answered for is there; what was under way may be.
            assert found in [*([Remembered()] if saved == 0 else []), *states[max(saved - 1, 0) : saved + 1]]


def test_a_full_disk_keeps_the_old_state() -> None:
    disk = SimDisk()
    file = StateFile(disk)
    file.save(Remembered(1, -1, member(1)))
    disk.capacity = disk.used()
    with pytest.raises(StorageError, match="No space"):
        file.save(Remembered(2, -1, member(2)))
    assert StateFile(disk).load() == Remembered(1, -1, member(1))


def test_what_a_killed_process_left_and_the_next_one_read_outlives_a_loss_of_power() -> None:
    for stop in range(1, 8):
        for seed in range(8):
            disk = SimDisk()
            StateFile(disk).save(Remembered(1, -1, member(1)))
            disk.crash_at = disk.operations + stop
            try:
                StateFile(disk).save(Remembered(2, -1, member(2)))
            except Crashed:
                pass
            disk.kill()
            read = StateFile(disk).load()
            disk.crash(Random(seed))
            assert StateFile(disk).load() == read


def test_a_copy_without_the_directory_is_never_left_by_a_crash() -> None:
    """It would tell that the metadata was lost."""
    for crash_at in range(1, 20):
        disk = SimDisk()
        disk.crash_at = crash_at
        try:
            StateFile(disk).save(Remembered(1, -1, member(1)))
        except Crashed:
            disk.crash_at = None
            disk.crash(Random(crash_at))
        assert disk.exists("__cluster_metadata-0") or not StateFile(disk).has_copy, crash_at
