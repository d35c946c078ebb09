"""The parameters of a request in the Query protocol: names with dots, flat on the wire, a tree here.

`Attribute.1.Name=VisibilityTimeout` is the leaf at Attribute, 1, Name. How many parameters there are, and how many
parts their names have, is bounded before anything is decoded.
"""

from __future__ import annotations

from binascii import a2b_qp
from urllib.parse import unquote_to_bytes

from skidway.gateways.sqs.bounds import PARAMETER_PARTS_MAX, PARAMETERS_MAX
from skidway.gateways.sqs.errors import bad_serialization

Leaves = dict[str, str]
Tree = dict[str, "str | Tree"]


def parse_form(raw: bytes) -> Leaves:
    """Each name once. Raises SqsError."""
    found: Leaves = {}
    if not raw:
        return found
    if raw.count(b"&") >= PARAMETERS_MAX:
        raise bad_serialization(f"a request may have at most {PARAMETERS_MAX} parameters")
    for pair in raw.split(b"&"):
        if not pair:
            continue
        name, _, value = pair.partition(b"=")
        try:
            decoded = unquote(name.replace(b"+", b" ")).decode()
            text = unquote(value.replace(b"+", b" ")).decode()
        except UnicodeDecodeError:
            raise bad_serialization("a parameter is not UTF-8 after decoding its % sequences") from None
        if decoded in found:
            raise bad_serialization(f"the parameter {decoded[:100]} is there twice")
        found[decoded] = text
    return found


def unquote(raw: bytes) -> bytes:
    """Decode % sequences. Quoted-printable is the same with another sign, and its decoder takes a megabyte in the time
    that Python's own takes for some kilobytes."""
    escapes = raw.count(b"%")
    if not escapes:
        return raw
    if b"\n" not in raw and b"\r" not in raw:
        found = a2b_qp(raw.replace(b"=", b"=3D").replace(b"%", b"="))
        if len(found) == len(raw) - 2 * escapes:  # every sign was the beginning of a sequence
            return found
    return unquote_to_bytes(raw)


def grow(leaves: Leaves) -> Tree:
    """Raises SqsError."""
    tree: Tree = {}
    for name, value in leaves.items():
        if name.count(".") >= PARAMETER_PARTS_MAX:
            raise bad_serialization(f"the name of a parameter may have at most {PARAMETER_PARTS_MAX} parts")
        *branches, last = name.split(".")
        node = tree
        for branch in branches:
            below = node.setdefault(branch, {})
            if isinstance(below, str):
                raise _both(name)
            node = below
        if last in node:
            raise _both(name)
        node[last] = value
    return tree


def items(node: str | Tree | None) -> list[str | Tree]:
    """What is numbered below, in order. An empty list is written as a name without a value."""
    if node is None or node == "":
        return []
    if isinstance(node, str):
        raise bad_serialization("a list is numbered: Name.1, Name.2 and so on")
    if not all(number.isascii() and number.isdigit() and len(number) <= 9 for number in node):
        raise bad_serialization("a list is numbered: Name.1, Name.2 and so on")
    return [node[number] for number in sorted(node, key=int)]


def _both(name: str) -> Exception:
    return bad_serialization(f"the parameter {name[:100]} has a value and parts")
