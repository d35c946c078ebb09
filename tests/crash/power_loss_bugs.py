"""Bugs to plant while a test runs. A checker that finds none proves something only after it has found these."""

from collections.abc import Callable
from typing import Any

import pytest

from skidway.broker.partitions.partition import Partition
from skidway.log import producers
from skidway.log.durability import starts
from skidway.log.durability.offset_files import OffsetFiles
from skidway.log.durability.sync import Removal, SyncTicket
from skidway.log.log import Log
from skidway.log.producers import Producers, Snapshot
from skidway.log.recovery import replay as recovery
from skidway.log.recovery import tail
from skidway.metadata.topic_names import CLUSTER_METADATA
from skidway.ports import Disk
from skidway.runtime.replicated import Now, Replicated

Plant = Callable[[pytest.MonkeyPatch], None]
FAR = 2**62


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    configure = Partition.configure

    def careless(self: Partition, config: Any) -> None:
        configure(self, config)
        self.log.is_flushed = self.topic == CLUSTER_METADATA

    patch.setattr(Partition, "configure", careless)


def answer_the_controllers_clients_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    submit = Replicated.submit

    def hasty(self: Any, operation: Any, now: Now, respond: Any) -> None:
        submit(self, operation, now, respond)
        self.on_committed(FAR)

    patch.setattr(Replicated, "submit", hasty)


def checkpoint_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    run = SyncTicket.run

    def reordered(self: SyncTicket) -> None:
        if self.is_checkpoint:
            self._write_checkpoint()
        run(self)

    patch.setattr(SyncTicket, "run", reordered)


def sync_no_directories(patch: pytest.MonkeyPatch) -> None:
    run = SyncTicket.run

    def careless(self: SyncTicket) -> None:
        self.directories = []
        run(self)

    patch.setattr(SyncTicket, "run", careless)


def count_what_was_appended_during_the_sync_as_synced(patch: pytest.MonkeyPatch) -> None:
    finish = Log.finish_sync

    def generous(self: Log, ticket: SyncTicket) -> None:
        finish(self, ticket)
        self.synced_offset = self.end_offset

    patch.setattr(Log, "finish_sync", generous)


class _EqualToAll(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def believe_every_checksum_in_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "crc32c", lambda data, start=0: _EqualToAll())


def serve_what_was_recovered_without_syncing_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tail, "_distrust_memory", lambda segments: None)


def remember_one_batch_of_each_producer(patch: pytest.MonkeyPatch) -> None:
    snapshot = Producers.snapshot

    def forgetful(self: Producers, *arguments: Any) -> Snapshot:
        taken = snapshot(self, *arguments)
        head, batch = producers._HEAD.size, producers._BATCH.size
        taken._packed = {pid: packed[:head] + packed[head:][-batch:] for pid, packed in taken._packed.items()}
        return taken

    patch.setattr(Producers, "snapshot", forgetful)


def rename_given_up_segments_in_any_order(patch: pytest.MonkeyPatch) -> None:
    run = Removal.run

    def reversed_(self: Removal, disk: Disk, directory: str) -> None:
        self.renamed.reverse()
        run(self, disk, directory)

    patch.setattr(Removal, "run", reversed_)


def keep_the_offsets_of_a_deleted_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetFiles, "forget_at_once", lambda self, key: None)


def save_a_start_above_what_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(starts, "savable", lambda log: log.start_offset)


OFTEN: list[Plant] = [
    acknowledge_before_the_sync,
    answer_the_controllers_clients_before_the_commit,
    sync_no_directories,
    count_what_was_appended_during_the_sync_as_synced,
    believe_every_checksum_in_recovery,
    remember_one_batch_of_each_producer,
]
"""Found in every fifth history or more."""
SELDOM: list[Plant] = [
    checkpoint_before_the_sync,
    serve_what_was_recovered_without_syncing_it,
    rename_given_up_segments_in_any_order,
    keep_the_offsets_of_a_deleted_topic,
    save_a_start_above_what_is_synced,
]
"""Found in about every hundredth."""
