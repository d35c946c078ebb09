"""MD5 of bodies and of attributes, as clients compute them to see whether a message came through whole.

Attributes are sorted by name. Each gives its name, its data type, a byte for the kind of value and the value; all but
that byte with its length before it, in four bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5

from skidway.gateways.sqs.shapes import AttributeValue

TEXT = b"\x01"
BINARY = b"\x02"


def md5_of_body(body: bytes) -> str:
    return md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, AttributeValue]) -> str | None:
    """None for none."""
    if not attributes:
        return None
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        digest.update(_counted(name.encode()))
        digest.update(_counted((value.data_type or "").encode()))
        if value.binary_value is not None:
            digest.update(BINARY + _counted(value.binary_value))
        else:
            digest.update(TEXT + _counted((value.string_value or "").encode()))
    return digest.hexdigest()


def _counted(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw
