"""The name that was probably meant: one way to find it and one way to say so, for names of every kind."""

import difflib
from collections.abc import Iterable

CLOSE_ENOUGH = 0.6


def closest(name: str, known: Iterable[str]) -> str | None:
    """Capitals and small letters are the same here; None where nothing is close."""
    names = {each.casefold(): each for each in known if each != name}
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=CLOSE_ENOUGH)
    return names[close[0]] if close else None


def question(name: str, known: Iterable[str]) -> str | None:
    meant = closest(name, known)
    return None if meant is None else f"did you mean {meant}?"
