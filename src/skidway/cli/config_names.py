"""Names of topic, group and broker configs: NAME=VALUE as it is typed, and a hint when a name is misspelt.

The broker refuses a name that it does not know; the hint is found here, so that other clients cost the broker nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import typer

from skidway.cli.help.misspelt import question
from skidway.cli.output import fail


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"{text!r} is not a setting; expected NAME=VALUE")
    return name.strip(), value


@contextmanager
def topic_names(given: Iterable[str]) -> Iterator[None]:
    """Where the broker refuses topic configs, say which name was probably meant."""
    from skidway.metadata.topic_configs import TOPIC_KEYS

    with hinted(given, lambda: TOPIC_KEYS):
        yield


@contextmanager
def group_names(given: Iterable[str]) -> Iterator[None]:
    """The same for configs of groups."""
    from skidway.metadata.group_configs import GROUP_KEYS

    with hinted(given, lambda: GROUP_KEYS):
        yield


@contextmanager
def hinted(given: Iterable[str], known: Callable[[], Iterable[str]]) -> Iterator[None]:
    """The same for names of any kind; `known` is asked for only when the broker refuses."""
    from skidway.blocking_client.errors import BrokerError
    from skidway.errors import ErrorCode

    try:
        yield
    except BrokerError as error:
        if error.code not in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
            raise
        names = list(known())
        hints = [hint for name in given if name not in names and (hint := question(name, names))]
        if not hints:
            raise
        fail("; ".join([str(error), *hints]))
