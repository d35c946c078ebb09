"""Libraries that only some of this package needs. They come with extras of the distribution; without one, using what
needs it raises `MissingExtra` with the command that installs it, and everything else works."""

from importlib import import_module
from types import ModuleType

from skidway.client.errors import ClientError

# module -> (extra, name of the distribution)
EXTRAS = {
    "confluent_kafka": ("client", "confluent-kafka"),
    "redis": ("redis", "redis"),
    "psycopg": ("postgres", "psycopg"),
}


class MissingExtra(ClientError):
    """A library that this feature stands on is not installed."""


def load(module: str, needed_by: str) -> ModuleType:
    extra, distribution = EXTRAS[module]
    try:
        return import_module(module)
    except ImportError as error:
        text = f"{needed_by} needs {distribution}: pip install 'skidway[{extra}]' ({error})"
        raise MissingExtra(text) from error
