"""Libraries that only some of this package needs. They come with extras of the distribution; without one, using what
needs it ends with the command that installs it (`MissingExtra`, or `hint` on the command line), and everything else
works."""

from importlib import import_module
from types import ModuleType

from skidway.blocking_client.errors import ClientError

# module -> (extra, name of the distribution)
EXTRAS = {
    "confluent_kafka": ("client", "confluent-kafka"),
    "redis": ("redis", "redis"),
    "psycopg": ("postgres", "psycopg"),
    "pyspark": ("spark", "pyspark"),
    "py4j": ("spark", "pyspark"),
    "pyarrow": ("spark", "pyarrow"),
    "numba": ("spark", "numba"),
    "numpy": ("spark", "numba"),
    "grpc": ("pipelines", "pyspark[pipelines]"),
    "pandas": ("pipelines", "pandas"),
    "deltalake": ("pipelines", "deltalake"),
    "obstore": ("pipelines", "obstore"),
    "pyiceberg": ("pipelines", "pyiceberg"),
    "matplotlib": ("pipelines", "matplotlib"),
}


class MissingExtra(ClientError):
    """A library that this feature stands on is not installed."""


def hint(error: ImportError) -> str | None:
    """What to install after an import failed; None if the module belongs to no extra, so that it is a bug."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    extra, distribution = EXTRAS[module]
    return f"this needs {distribution}, which is not installed: pip install 'skidway[{extra}]'"


def load(module: str, needed_by: str) -> ModuleType:
    extra, distribution = EXTRAS[module]
    try:
        return import_module(module)
    except ImportError as error:
        text = f"{needed_by} needs {distribution}: pip install 'skidway[{extra}]' ({error})"
        raise MissingExtra(text) from error
