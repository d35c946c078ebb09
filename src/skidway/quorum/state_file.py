"""`quorum-state`: what a member of the quorum must never forget, in Kafka's format (JSON, data version 1).

It is kept twice: beside the metadata log, where Kafka has it, and in the data directory itself. Either one is enough,
because nothing is answered before both are durable, and the newer one counts. So a file that is lost or damaged does
not make a member vote twice in one epoch, and a metadata log that is gone as a whole is told from one that never was.
If neither can be read, the node does not start: guessing might vote twice.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress

import msgspec

from skidway.errors import StorageError
from skidway.ports import Disk
from skidway.quorum.messages import NO_LEADER
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import NO_DIRECTORY, Member

METADATA_DIRECTORY = "__cluster_metadata-0"
_NAME = "quorum-state"
_BYTES_MAX = 65_536
_DATA_VERSIONS = (0, 1)
_WAY_OUT = (
    "Restore it from a copy, or start the node with a new data directory and let it take the place of the old voter; "
    "without the file it could vote twice"
)


class _State(msgspec.Struct, rename="camel"):
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str = ""
    data_version: int = msgspec.field(name="data_version", default=-1)


class StateFile:
    """Implements `storage.Memory`."""

    __slots__ = ("_copy", "_disk", "_path", "_saved_before", "trouble")

    def __init__(self, disk: Disk, directory: str = METADATA_DIRECTORY) -> None:
        self._disk = disk
        self._path = f"{directory}/{_NAME}"
        self._copy = _NAME
        self._saved_before = False
        self.trouble = ""
        """What `load` found wrong with one of the files."""

    @property
    def has_copy(self) -> bool:
        """Whether this data directory has taken part in a quorum, whatever became of its metadata."""
        return self._disk.exists(self._copy)

    @property
    def exists(self) -> bool:
        return self.has_copy or self._disk.exists(self._path)

    def load(self) -> Remembered:
        found: list[Remembered] = []
        unreadable: list[str] = []
        for path in (self._copy, self._path):
            try:
                if (remembered := self._read(path)) is not None:
                    found.append(remembered)
            except StorageError as error:
                unreadable.append(str(error))
        if unreadable and not found:
            raise StorageError(f"{unreadable[-1]}. {_WAY_OUT}")
        if unreadable:
            self.trouble = f"{unreadable[0]}. The other copy of it is used"
        elif self._disk.exists(self._copy) and not self._disk.exists(self._path):
            self.trouble = f"{self._path} is missing; the copy in the data directory is used"
        newest = max(found, key=_progress, default=Remembered())
        if found and (unreadable or len(found) == 1):
            with suppress(StorageError):  # a disk that takes nothing now will be asked again by the next vote
                self.save(newest)
        return newest

    def _read(self, path: str) -> Remembered | None:
        try:
            if self._disk.size(path) > _BYTES_MAX:
                raise StorageError(f"{path} is larger than {_BYTES_MAX} bytes: it is not a quorum state")
            data = self._disk.read(path)
            # Whoever wrote it may have been killed before its name was durable, and what it says is acted upon.
            self._disk.sync_directory(path.rpartition("/")[0])
        except FileNotFoundError:
            return None
        try:
            return _decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StorageError(f"{path} cannot be read: {error}") from error

    def save(self, remembered: Remembered) -> None:
        directory = self._path.rpartition("/")[0]
        data = _encode(remembered)
        try:
            if not self._saved_before:
                # Durable first: a copy without the directory tells that the metadata was lost.
                self._disk.make_directory(directory)
                self._disk.sync_directory(directory.rpartition("/")[0])
                self._saved_before = True
            self._disk.write_atomic(self._copy, data)
            self._disk.write_atomic(self._path, data)
        except OSError as error:
            raise StorageError(f"{self._path}: {error}") from error


def _progress(remembered: Remembered) -> tuple[int, bool, bool]:
    """In an epoch a member first votes, then hears of a leader."""
    return remembered.epoch, remembered.voted is not None, remembered.leader != NO_LEADER


def _encode(remembered: Remembered) -> bytes:
    voted = remembered.voted or Member(-1)
    state = _State(
        leader_id=remembered.leader,
        leader_epoch=remembered.epoch,
        voted_id=voted.node_id,
        voted_directory_id=urlsafe_b64encode(voted.directory_id).decode().rstrip("="),
        data_version=1,
    )
    return msgspec.json.encode(state)


def _decode(data: bytes) -> Remembered:
    state = msgspec.json.decode(data, type=_State)
    if state.data_version not in _DATA_VERSIONS:
        raise ValueError(f"data version {state.data_version}, known are {_DATA_VERSIONS}")
    if state.leader_epoch < 0 or state.leader_id < -1 or state.voted_id < -1:
        raise ValueError("an epoch or a node id below zero")
    voted = None
    if state.voted_id >= 0:
        directory = urlsafe_b64decode(state.voted_directory_id + "==") if state.voted_directory_id else NO_DIRECTORY
        if len(directory) != len(NO_DIRECTORY):
            raise ValueError(f"a directory id of {len(directory)} bytes")
        voted = Member(state.voted_id, directory)
    return Remembered(state.leader_epoch, state.leader_id, voted)
