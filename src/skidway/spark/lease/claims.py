"""The claims of a lease in a store: `lease/<epoch>` says who, `lease/<epoch>.beat` that it lives.

A claim is created and never changed; a beat is written by the claim's holder alone. Claims before the newest are
removed. So a name that is free may have been taken and removed: whoever created a claim looks again whether it is the
newest, and holds nothing if it is not.
"""

from typing import TypeVar

import msgspec

from skidway.spark.lease.decisions import Holder, Seen
from skidway.spark.stores import Store

FOLDER = "lease"
BEAT = ".beat"
CLAIM_BYTES_MAX = 64 * 1024

Told = TypeVar("Told")


class Beat(msgspec.Struct, frozen=True):
    beat: int
    released: bool = False


class Claims:
    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self) -> Seen | None:
        """None if nobody ever held it."""
        while True:
            epochs = self._epochs()
            if not epochs:
                return None
            content = self._store.read(_claim(epochs[-1]))
            if content is None:
                continue  # Removed since the look: there is a newer one.
            holder = _decoded(content, Holder) or Holder("an unknown host", "", 0, "", "")
            beat = _decoded(self._store.read(_claim(epochs[-1]) + BEAT) or b"", Beat) or Beat(-1)
            return Seen(epochs[-1], holder, beat.beat, beat.released)

    def take(self, epoch: int, holder: Holder) -> bool:
        """Whether the holder has it now."""
        if not self._store.create(_claim(epoch), msgspec.json.encode(holder)):
            return False
        if self._epochs()[-1:] != [epoch]:
            self._store.remove(_claim(epoch))
            return False
        for older in self._epochs():
            if older < epoch:
                self._store.remove(_claim(older) + BEAT)
                self._store.remove(_claim(older))
        return True

    def beat(self, epoch: int, beat: int) -> None:
        self._store.replace(_claim(epoch) + BEAT, msgspec.json.encode(Beat(beat)))

    def release(self, epoch: int, beat: int) -> None:
        self._store.replace(_claim(epoch) + BEAT, msgspec.json.encode(Beat(beat, released=True)))

    def _epochs(self) -> list[int]:
        return sorted(int(name) for name in self._store.names(FOLDER) if name.isdecimal())


def _claim(epoch: int) -> str:
    return f"{FOLDER}/{epoch:012d}"


def _decoded(content: bytes, kind: type[Told]) -> Told | None:
    """Nothing of what is torn: the file system knows no hard links, or somebody wrote there."""
    try:
        return msgspec.json.decode(content, type=kind) if len(content) <= CLAIM_BYTES_MAX else None
    except msgspec.DecodeError:
        return None
