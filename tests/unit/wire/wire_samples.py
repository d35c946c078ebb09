"""Random messages drawn from the schemas, and every (message, version) pair there is."""

from collections.abc import Iterator
from importlib import import_module
from random import Random
from typing import Any

from skidway.errors import ErrorCode
from skidway.wire.message import Field, Message
from skidway.wire.registry import APIS, api, codec

# Modules of messages that are not requests or responses.
RECORD_MODULES = (
    "metadata_records",
    "group_records",
    "share_records",
    "transaction_records",
    "quorum_state",
    "consumer_protocol",
    "principal_data",
    "control_records",
)

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ALPHABET = "abcXYZ019.-_ éλ漢🙂"


def versions_of(message: type[Message]) -> range:
    return range(message.__versions__.first, message.__versions__.last + 1)


def api_messages() -> Iterator[type[Message]]:
    for key in APIS:
        yield api(key).request.message
        yield api(key).response.message


def record_messages() -> Iterator[type[Message]]:
    """Only those that stand by themselves: the parts of a message have no versions of their own."""
    for name in RECORD_MODULES:
        for value in vars(import_module(f"skidway.wire.schema.{name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and len(versions_of(value)) > 0:
                yield value


def encode(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    codec(type(message)).encoder(version)(message, parts)
    return b"".join(parts)


SPOKEN_BY_OTHERS = ("PartitionData", "PartitionResult", "WritableTxnMarkerTopic", "WriteTxnMarkersRequest")
OWN_TAG_MIN = 1000
"""Tagged fields from here on are Skidway's own: nobody else writes them."""


def random_message(message: type[Message], version: int, random: Random) -> Message:
    """Fields that the version does not have keep their defaults, so that the message survives a round trip. Kafka's
    requests and responses are those that others know, without Skidway's own fields."""
    values = {}
    for field in message.__fields__:
        if field.tag is not None and field.tag >= OWN_TAG_MIN and message.__name__ in SPOKEN_BY_OTHERS:
            continue
        if version in field.versions and (field.tag is None or random.random() < 0.7):
            values[field.name] = _random_value(field, version, random)
    return message(**values)


def _random_value(field: Field, version: int, random: Random) -> Any:
    if version in field.nullable and random.random() < 0.25:
        return None
    if field.kind != "array":
        return _random_item(field, field.kind, version, random)
    lengths = (0, 1, 2, 3) if field.struct else (0, 1, 2, 5, 130)
    return [_random_item(field, field.element, version, random) for _ in range(random.choice(lengths))]


def _random_item(field: Field, kind: str, version: int, random: Random) -> Any:
    match kind:
        case "bool":
            return random.random() < 0.5
        case "uint16":
            return random.choice((0, 1, 9092, 2**15, 2**16 - 1))
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "string":
            return "".join(random.choices(ALPHABET, k=random.choice((0, 1, 9, 60, 200))))
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 30, 200, 17_000)))
        case "uuid":
            return random.randbytes(16)
        case "struct":
            assert field.struct is not None
            return random_message(field.struct, version, random)
    return _random_integer(field, kind, random)


def _random_integer(field: Field, kind: str, random: Random) -> int:
    if kind == "int16" and field.name.endswith("error_code"):
        return int(random.choice(list(ErrorCode)))
    if kind == "int64" and ("time" in field.name or field.name.endswith("_ms")):
        # The oracle makes dates of these: they must lie in the calendar, and -1 is none only where it is the default.
        return random.choice((field.default, 0, 1, 1_700_000_000_000, random.randrange(2**42)))
    top = 2 ** (INTEGER_BITS[kind] - 1)
    return random.choice((0, 1, -1, top - 1, -top, random.randrange(-top, top)))
