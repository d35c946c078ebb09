"""Options of pipelines: dataclasses whose fields carry their help, so that library and command line say the same.

A field is `name: type = option("what it is", default)`. Types the command line can offer: str, int, float, bool, each
also `| None`, and list[str]. `from_texts` makes options of what a TOML file or flags gave.
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

from skidway.limits import INT64_MAX

HELP = "help"
DURATION = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULT_FOLDER = "pipelines"
"""Not below `data`: a broker started in the same directory keeps its partitions there."""

DELIVERIES = ("exactly_once", "at_least_once")

Options = TypeVar("Options")


class BadPipeline(ValueError):
    """What a pipeline was told makes no sense; the text says what would."""


def option(told: str, default: Any = MISSING) -> Any:
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={HELP: told})
    if default is MISSING:
        return field(metadata={HELP: told})
    return field(default=default, metadata={HELP: told})


@dataclass(slots=True, kw_only=True)
class Common:
    """What every pipeline that reads topics has."""

    topic: list[str] = option("Topics to read.")
    bootstrap: str = option("Brokers to connect to first: host:port, separated by commas.", "127.0.0.1:9092")
    start: str = option(
        'Where the first run begins: earliest, latest or {"topic": {"0": offset}}. Later runs continue.', "earliest"
    )
    name: str | None = option("What this pipeline is called, in its status and metrics. Default: its kind.", None)
    checkpoint: str | None = option("Where progress is kept. Default: pipelines/NAME.", None)
    wait: str = option("How long to wait while another driver runs with this checkpoint: 10m, 1h.", "0s")
    max_records: int | None = option("Records per batch, at most.", None)
    group: str | None = option("Group to commit progress to, so that `skidway group describe` shows the lag.", None)
    source_option: list[str] = option('More options of format("skidway"): name=value.', [])

    def __post_init__(self) -> None:
        if not self.topic or not all(name.strip() for name in self.topic):
            raise BadPipeline("no topic to read; name one or more")
        if self.name is not None and not NAME.fullmatch(self.name):
            raise BadPipeline(f"{self.name!r} is not a name: letters, digits, '.', '_' and '-', 100 at most")
        parse_duration_ms(self.wait)

    def folder(self, kind: str) -> str:
        return self.checkpoint or f"{DEFAULT_FOLDER}/{self.name or kind}"


DELIVERY_HELP = "exactly_once or at_least_once. Default: exactly_once if the brokers can, as Skidway's can."
SINK_OPTION_HELP = 'More options of the write: name=value, e.g. "kafka.transaction.timeout.ms=60000".'


@dataclass(slots=True, kw_only=True)
class ToTopics(Common):
    """What every pipeline that reads and writes topics has."""

    delivery: str | None = option(DELIVERY_HELP, None)
    sink_option: list[str] = option(SINK_OPTION_HELP, [])

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        check_delivery(self.delivery)


def check_delivery(delivery: str | None) -> None:
    if delivery not in (None, *DELIVERIES):
        raise BadPipeline(f"delivery must be {' or '.join(DELIVERIES)}, not {delivery!r}")


@dataclass(slots=True, frozen=True)
class Trigger:
    """How often a batch begins; without an interval: all there is now, then the end."""

    interval_ms: int | None = 1_000

    def spark(self) -> dict[str, Any]:
        if self.interval_ms is None:
            return {"availableNow": True}
        return {"processingTime": f"{self.interval_ms} milliseconds"}


EVERY_SECOND = Trigger()
ONCE = Trigger(None)


def parse_duration_ms(text: str) -> int:
    match = DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise BadPipeline(f"{text!r} is not a duration; write 500ms, 1s, 10m, 2h or 1d")
    return int(match[1]) * UNITS_MS[match[2]]


def interval(text: str) -> str:
    """As Spark's functions take it."""
    return f"{parse_duration_ms(text)} milliseconds"


def pairs(texts: list[str], about: str) -> dict[str, str]:
    """name=value."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise BadPipeline(f"{about}: {text!r} is not name=value")
        found[name.strip()] = value.strip()
    return found


def labelled(text: str, about: str) -> tuple[str, str]:
    """LABEL: SQL. The label has no space or colon in it, so the SQL may."""
    match = re.fullmatch(r"\s*([^\s:]+)\s*(?::\s*(.*\S))?\s*", text, re.DOTALL)
    if match is None:
        raise BadPipeline(f"{about}: {text!r} is not NAME: SQL")
    return match[1], match[2] or ""


def from_texts(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Options of a mapping as TOML or flags give it: names may have dashes, one text stands for a list of one."""
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    types = get_type_hints(kind)
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        attribute = name.replace("-", "_")
        if attribute not in known:
            raise BadPipeline(f"there is no option {name}; the options are {', '.join(sorted(known))}")
        chosen[attribute] = _checked(name, value, types[attribute])
    missing = [
        one.name
        for one in known.values()
        if one.name not in chosen and one.default is MISSING and one.default_factory is MISSING
    ]
    if missing:
        raise BadPipeline(f"missing: {', '.join(missing)}")
    return kind(**chosen)


def _checked(name: str, value: Any, wanted: Any) -> Any:
    if str(wanted).startswith("list"):
        return [value] if isinstance(value, str | dict) else list(value)
    plain = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    for kind, told in plain.items():
        if wanted in (kind, kind | None):
            fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
            if not fits or (kind is int and (isinstance(value, bool) or abs(value) > INT64_MAX)):
                raise BadPipeline(f"{name} must be {told}, not {value!r}")
    return value
