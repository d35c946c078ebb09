"""Metadata logs on simulated disks, for the tests of the quorum's storage."""

from skidway.log.recovery import opening
from skidway.log.settings import LogSettings
from skidway.quorum.log import MetadataLog
from skidway.quorum.state_file import METADATA_DIRECTORY
from skidway.quorum.voters import Member, Voter, Voters
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk

SETTINGS = LogSettings(cleanup_delete=False, segment_bytes=4096, checkpoint_bytes=2048)


class WallClock:
    now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def member(number: int) -> Member:
    return Member(number, bytes([number]) * 16)


def voter_set(*numbers: int) -> Voters:
    return Voters(Voter(member(number), f"host{number}", 9000 + number) for number in numbers)


def open_log(disk: SimDisk, clock: WallClock | None = None) -> MetadataLog:
    disk.make_directory(METADATA_DIRECTORY)
    disk.sync_directory("")
    clock = clock or WallClock()
    log = opening.open_log(
        disk, METADATA_DIRECTORY, SETTINGS, clean=False, recovery_point=0, start_offset=None, now_ms=clock.now_ms
    )
    return MetadataLog(log, clock)


def append(log: MetadataLog, epoch: int, *values: bytes) -> int:
    batch = build_batch([Record(0, WallClock.now_ms, None, value) for value in values])
    return log.append_records(batch, read_header(batch), epoch, WallClock.now_ms)


def sync(log: MetadataLog) -> None:
    ticket = log.log.begin_sync()
    if ticket is not None:
        ticket.run()
        log.log.finish_sync(ticket)
