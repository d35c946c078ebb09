"""Metadata records <-> bytes, as KRaft writes its log.

A record's value is: frame version 1, record type, record version (three unsigned varints), then the body. What cannot
be read raises StorageError: metadata is never skipped or guessed.
"""

from collections.abc import Callable

from skidway.errors import ProtocolError, StorageError
from skidway.ports import Buffer
from skidway.records.record import Record
from skidway.runtime.log_store import Format
from skidway.wire.compile import Codec
from skidway.wire.message import Message
from skidway.wire.primitives import encode_uvarint, read_uvarint
from skidway.wire.registry import codec, encoded
from skidway.wire.schema import metadata_records

FRAME_VERSION = 1
_CLASSES: dict[int, type[Message]] = {
    cls.__key__: cls
    for cls in vars(metadata_records).values()
    if isinstance(cls, type) and issubclass(cls, Message) and cls.__key__ is not None
}


# Said once: the cache in front of `codec` hides its type.
_codec: Callable[[type[Message]], Codec[Message]] = codec


def encode(record: Message) -> bytes:
    cls: type[Message] = type(record)
    assert cls.__key__ is not None, record
    version = cls.__versions__.last
    frame = encode_uvarint(FRAME_VERSION) + encode_uvarint(cls.__key__) + encode_uvarint(version)
    return encoded(record, version, frame)


def decode(value: Buffer) -> Message:
    try:
        frame_version, position = read_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise StorageError(f"metadata record with frame version {frame_version}, only {FRAME_VERSION} is known")
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        cls = _CLASSES.get(key)
        if cls is None:
            raise StorageError(f"metadata record of the unknown type {key}")
        record, end = _codec(cls).decoder(version)(value, position)
    except StorageError:
        raise
    except (ProtocolError, IndexError) as error:
        raise StorageError(f"unreadable metadata record: {error}") from error
    if end != len(value):
        raise StorageError(f"{len(value) - end} bytes after a metadata record of type {key}")
    return record


def _decode_record(record: Record) -> Message:
    if record.value is None:
        raise StorageError(f"metadata record at offset {record.offset} without a value")
    return decode(record.value)


FORMAT: Format[Message] = Format("metadata", lambda record: (None, encode(record)), _decode_record)
to_batch = FORMAT.to_batch
from_batches = FORMAT.from_batches
