"""What a node reports of dead letters of share groups that cannot be written: for the operators' log."""

from msgspec import Struct


class LettersBlocked(Struct, frozen=True):
    """A dead record waits for its letter, and is not archived. The broker tries again and again."""

    group: str
    partition: str
    offset: int
    """Of the first one that waits."""
    topic: str
    why: str


class LettersGoOn(Struct, frozen=True):
    """Letters are written again."""

    group: str
    partition: str
    topic: str


class LettersLost(Struct, frozen=True):
    """Dead records were archived without letters."""

    group: str
    partition: str
    first: int
    last: int
    why: str


LetterNews = LettersBlocked | LettersGoOn | LettersLost
