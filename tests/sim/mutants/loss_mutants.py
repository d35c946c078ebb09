"""Mistakes with copies that are not whole any more, as changes of the product that the simulator must find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.partitions.lost_copies import LostCopies
from skidway.log.durability.directory_work import FilesTicket
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.recovery.loading import Loaded, Loader
from skidway.log.recovery.log_files import LogFiles
from skidway.log.recovery.proof import Proof
from skidway.metadata import brokers


@contextmanager
def saved_watermark_ignored() -> Iterator[None]:
    """A log that ends below what was known to be committed is taken for whole."""
    original = Loader.load

    def load(self: Loader, recovery_point: int, start_offset: int | None, committed: int = 0) -> Loaded:
        return original(self, recovery_point, start_offset)

    with patch.object(Loader, "load", load):
        yield


@contextmanager
def damage_taken_for_torn() -> Iterator[None]:
    """A bad batch that no crash explains is cut off, like the end of an append that a crash interrupted."""
    original = Loader.load

    def load(self: Loader, recovery_point: int, start_offset: int | None, committed: int = 0) -> Loaded:
        self.intact = False
        return original(self, recovery_point, start_offset)

    with patch.object(Loader, "load", load):
        yield


@contextmanager
def watermarks_of_unopened_dropped() -> Iterator[None]:
    """What was committed in a partition that is not open is not saved again."""
    original = Logs.begin_save

    def begin_save(self: Logs) -> FilesTicket | None:
        self.offsets._forgotten.update(key for key in self.offsets.watermarks if key not in self._opened)
        return original(self)

    with patch.object(Logs, "begin_save", begin_save):
        yield


def _create(self: Logs, topic: str, partition: int, topic_id: bytes, settings: Any, now_ms: int, reason: str) -> Log:
    return self.create(topic, partition, topic_id, settings, now_ms)


@contextmanager
def missing_directories_begin_empty() -> Iterator[None]:
    """A directory that is gone is taken for one that was never there."""
    with patch.object(Logs, "create_missing", _create):
        yield


@contextmanager
def broken_metadata_begins_empty() -> Iterator[None]:
    """A partition whose `partition.metadata` cannot be read makes way for a new one."""
    with patch.object(Logs, "claim", lambda *arguments: None), patch.object(Logs, "create_missing", _create):
        yield


@contextmanager
def damaged_copies_stay_in_sync() -> Iterator[None]:
    """Nobody tells the controller, so nobody else may lead."""
    with patch.object(LostCopies, "_send", lambda self: setattr(self, "_unheard", set())):
        yield


@contextmanager
def missing_beginnings_not_missed() -> Iterator[None]:
    """A first segment that is gone is taken for one that retention removed."""
    with patch.object(Proof, "lost_first_file", lambda *arguments: False):
        yield


@contextmanager
def cuts_not_told() -> Iterator[None]:
    """A start shortens a log and says nothing."""
    with patch.object(LogFiles, "note_cut", lambda *arguments: None):
        yield


@contextmanager
def empty_disks_trusted() -> Iterator[None]:
    """A broker that comes back with another disk stays in sync."""
    original = brokers.decide_register

    def decide_register(view: Any, liveness: Any, operation: Any, now_ms: int) -> Any:
        known = view.image.brokers.get(operation.broker_id)
        if known is not None and operation.fenced:
            operation.previous_broker_epoch, known.log_dirs = known.epoch, operation.log_dirs
        return original(view, liveness, operation, now_ms)

    with patch.object(brokers, "decide_register", decide_register):
        yield
