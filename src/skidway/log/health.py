"""Whether a log can be written and read. It gets worse by steps, and well again in one way only:

    Sound --fail--> ReadOnly --quarantine--> Quarantined --begin anew--> Sound
    Sound --quarantine--------------------->

The first reason is kept: what fails later follows from it. A log that is read-only stays so until it is opened again,
because nobody knows what the disk did with its pages. A quarantined one may begin anew, empty, with what a leader has.
"""

import msgspec


class Sound(msgspec.Struct):
    """Written and read."""


class ReadOnly(msgspec.Struct):
    """The disk broke a promise, or the log is closed: no appends, no syncs."""

    why: str


class Quarantined(msgspec.Struct):
    """Damaged: neither read nor written nor cut, and where it begins and ends is not to be believed."""

    why: str


Health = Sound | ReadOnly | Quarantined
SOUND = Sound()
"""The only one there is: `is SOUND` is all that an append asks."""


def failed(health: Health, why: str) -> ReadOnly | Quarantined:
    return ReadOnly(why) if isinstance(health, Sound) else health


def quarantined(health: Health, why: str) -> Quarantined:
    match health:
        case Quarantined():
            return health
        case ReadOnly(first):
            return Quarantined(first)
        case Sound():
            return Quarantined(why)


def begun_anew(health: Health) -> Sound:
    assert not isinstance(health, ReadOnly), f"what a failed disk holds cannot be replaced: {health}"
    return SOUND
