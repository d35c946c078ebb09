"""`quorum-state`: what a member of the quorum must never forget, in Kafka's format (JSON, data version 1).

A file that cannot be read keeps the node from starting: guessing might vote twice in one epoch.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from skidway.errors import StorageError
from skidway.ports import Disk
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import NO_DIRECTORY, Member

METADATA_DIRECTORY = "__cluster_metadata-0"
_NAME = "quorum-state"
_BYTES_MAX = 65_536
_DATA_VERSIONS = (0, 1)


class _State(msgspec.Struct, rename="camel"):
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str = ""
    data_version: int = msgspec.field(name="data_version", default=-1)


class StateFile:
    """Implements `storage.Memory`."""

    __slots__ = ("_disk", "_path", "_saved_before")

    def __init__(self, disk: Disk, directory: str = METADATA_DIRECTORY) -> None:
        self._disk = disk
        self._path = f"{directory}/{_NAME}"
        self._saved_before = False

    def load(self) -> Remembered:
        try:
            if self._disk.size(self._path) > _BYTES_MAX:
                raise StorageError(f"{self._path} is larger than {_BYTES_MAX} bytes: it is no quorum state")
            data = self._disk.read(self._path)
            # Whoever wrote it may have been killed before its name was durable, and what it says is acted upon.
            self._disk.sync_directory(self._path.rpartition("/")[0])
        except FileNotFoundError:
            return Remembered()
        try:
            return _decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StorageError(
                f"{self._path} cannot be read: {error}. Restore it from a copy, or start the node with a new data "
                "directory and let it take the place of the old voter; without the file it could vote twice"
            ) from error

    def save(self, remembered: Remembered) -> None:
        directory = self._path.rpartition("/")[0]
        try:
            if not self._saved_before:
                self._disk.make_directory(directory)
            self._disk.write_atomic(self._path, _encode(remembered))
            if not self._saved_before:
                # The directory itself may be as new as the file.
                self._disk.sync_directory(directory.rpartition("/")[0])
                self._saved_before = True
        except OSError as error:
            raise StorageError(f"{self._path}: {error}") from error


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
