"""Whether a log can be written and read. It gets worse by steps, and well again in one way only:

    Sound --fail--> ReadOnly --quarantine--> Quarantined --begin anew--> Sound
    Sound --quarantine--------------------->

The first reason is kept: what fails later follows from it. A log that is read-only stays so until it is opened again,
because nobody knows what the disk did with its pages. A quarantined one may begin anew, empty, with what a leader has.
A quarantine knows what kind of reason it has, also after a restart: `reason_bytes` go into the file `damaged`.
"""

import re

import msgspec

from skidway.errors import DamagedLog, StorageError

_ERRNO = re.compile(r"\[Errno (?!2\])\d+\]")
"""In a file that tells no kind. A missing file (2) is damage."""


class Damage(msgspec.Struct, frozen=True):
    """What is stored is not what was written, or a part of it is gone."""

    text: str


class DiskRefusal(msgspec.Struct, frozen=True):
    """The disk did not do what it was asked to: nobody knows what is stored."""

    text: str


Reason = Damage | DiskRefusal
_BEGINNINGS: dict[type[Reason], str] = {Damage: "damage: ", DiskRefusal: "the disk refused: "}


def reason_of(error: OSError | StorageError) -> Reason:
    is_damage = isinstance(error, DamagedLog | FileNotFoundError)
    return Damage(str(error)) if is_damage else DiskRefusal(str(error))


def at(place: str, reason: Reason) -> Reason:
    return msgspec.structs.replace(reason, text=f"{place}: {reason.text}")


def reason_bytes(reason: Reason) -> bytes:
    return f"{_BEGINNINGS[type(reason)]}{reason.text}".encode()


def reason_from_bytes(data: bytes) -> Reason:
    """Earlier versions wrote the text alone; a full disk had no room for any."""
    if not data:
        return Damage("the disk was full, so the reason is not known any more")
    text = data.decode(errors="replace")
    for kind, beginning in _BEGINNINGS.items():
        if text.startswith(beginning):
            return kind(text.removeprefix(beginning))
    return DiskRefusal(text) if _ERRNO.search(text) else Damage(text)


class Sound(msgspec.Struct):
    """Written and read."""


class ReadOnly(msgspec.Struct):
    """The disk broke a promise, or the log is closed: no appends, no syncs."""

    why: str


class Quarantined(msgspec.Struct):
    """Damaged: neither read nor written nor cut, and where it begins and ends is not to be believed."""

    reason: Reason

    @property
    def why(self) -> str:
        return self.reason.text


Health = Sound | ReadOnly | Quarantined
SOUND = Sound()
"""The only one there is: `is SOUND` is all that an append asks."""


def failed(health: Health, why: str) -> ReadOnly | Quarantined:
    return ReadOnly(why) if isinstance(health, Sound) else health


def quarantined(health: Health, reason: Reason) -> Quarantined:
    match health:
        case Quarantined():
            return health
        case ReadOnly(first):
            return Quarantined(DiskRefusal(first))
        case Sound():
            return Quarantined(reason)


def begun_anew(health: Health) -> Sound:
    assert not isinstance(health, ReadOnly), f"what a failed disk holds cannot be replaced: {health}"
    return SOUND
