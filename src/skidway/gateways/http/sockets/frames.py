"""Frames of RFC 6455, as a server reads and writes them.

A client's frames are masked, their lengths in the shortest form, control frames whole and small; anything else ends the
connection with the code that the RFC has for it. No extension is spoken, so no reserved bit is ever set. A message in
pieces is put together up to `MESSAGE_BYTES_MAX`, and refused by the length that a frame announces, before its bytes are
here.
"""

from __future__ import annotations

import base64
import hashlib
from enum import IntEnum
from typing import NamedTuple

from skidway.limits import KIB

MESSAGE_BYTES_MAX = 64 * KIB
CONTROL_BYTES_MAX = 125
PIECES_MAX = 1_000
"""Of one message: empty ones cost something as well."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FIN, _RESERVED, _OPCODE, _MASK, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_LENGTH_16, _LENGTH_64 = 126, 127
_MASK_BYTES = 4


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    NO_CODE = 1005
    BAD_TEXT = 1007
    POLICY = 1008
    TOO_BIG = 1009


_OPCODES = frozenset(Opcode)
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))


class Broken(Exception):
    """What came is no WebSocket of the kind that is spoken here: the connection ends with this code."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Message(NamedTuple):
    opcode: Opcode
    payload: bytes


class _Head(NamedTuple):
    opcode: Opcode
    final: bool
    begin: int
    """Of the payload, in the frame."""
    length: int


class FrameReader:
    """Messages of one connection, one after another."""

    __slots__ = ("_opcode", "_pieces", "_pieces_count", "needed")

    def __init__(self) -> None:
        self._opcode: Opcode | None = None
        """Of the message that has begun."""
        self._pieces = bytearray()
        self._pieces_count = 0
        self.needed = 0
        """Bytes of the frame that is not whole yet, if that is known."""

    def read(self, data: memoryview) -> tuple[int, Message | None]:
        """The frame at the beginning of `data`: how many bytes it has, 0 if they are not all here, and the message
        that it ends. Raises Broken."""
        self.needed = 0
        head = _head(data)
        if head is None:
            return 0, None
        self._check(head)
        end = head.begin + head.length
        if end > len(data):
            self.needed = end
            return 0, None
        payload = _unmasked(data[head.begin - _MASK_BYTES : head.begin], data[head.begin : end])
        return end, self._take(head, payload)

    def _check(self, head: _Head) -> None:
        if head.opcode >= Opcode.CLOSE:
            if not head.final or head.length > CONTROL_BYTES_MAX:
                raise Broken(CloseCode.PROTOCOL_ERROR, "a control frame is whole and has at most 125 bytes")
            return
        if (head.opcode == Opcode.CONTINUATION) != (self._opcode is not None):
            raise Broken(CloseCode.PROTOCOL_ERROR, "a message begins before the last one ends, or goes on without one")
        if len(self._pieces) + head.length > MESSAGE_BYTES_MAX or self._pieces_count >= PIECES_MAX:
            raise Broken(CloseCode.TOO_BIG, f"a message may have {MESSAGE_BYTES_MAX} bytes")

    def _take(self, head: _Head, payload: bytes) -> Message | None:
        if head.opcode >= Opcode.CLOSE:
            return Message(head.opcode, payload)
        if self._opcode is None:
            if head.final:
                return Message(head.opcode, payload)
            self._opcode = head.opcode
        self._pieces += payload
        self._pieces_count += 1
        if not head.final:
            return None
        whole = Message(self._opcode, bytes(self._pieces))
        self._opcode, self._pieces, self._pieces_count = None, bytearray(), 0
        return whole


def _head(data: memoryview) -> _Head | None:
    if len(data) < 2:
        return None
    first, second = data[0], data[1]
    if first & _RESERVED or (first & _OPCODE) not in _OPCODES:
        raise Broken(
            CloseCode.PROTOCOL_ERROR, "a frame has an unknown kind, or bits of extensions that nobody agreed on"
        )
    if not second & _MASK:
        raise Broken(CloseCode.PROTOCOL_ERROR, "a client has to mask its frames")
    length, begin = second & _LENGTH, 2
    if length >= _LENGTH_16:
        size, shortest = (2, _LENGTH_16) if length == _LENGTH_16 else (8, 1 << 16)
        if len(data) < begin + size:
            return None
        length = int.from_bytes(data[begin : begin + size], "big")
        if length < shortest:
            raise Broken(CloseCode.PROTOCOL_ERROR, "the length of a frame is not in its shortest form")
        begin += size
    return _Head(Opcode(first & _OPCODE), bool(first & _FIN), begin + _MASK_BYTES, length)


def _unmasked(mask: memoryview, payload: memoryview) -> bytes:
    if not len(payload):
        return b""
    repeated = (bytes(mask) * (len(payload) // _MASK_BYTES + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")
    return mixed.to_bytes(len(payload), "little")


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """A whole message, as a server sends it."""
    size = len(payload)
    if size < _LENGTH_16:
        return b"%c%c%b" % (_FIN | opcode, size, payload)
    if size < 1 << 16:
        return b"%c%c%b%b" % (_FIN | opcode, _LENGTH_16, size.to_bytes(2, "big"), payload)
    return b"%c%c%b%b" % (_FIN | opcode, _LENGTH_64, size.to_bytes(8, "big"), payload)


def close_frame(code: int, reason: str = "") -> bytes:
    if code == CloseCode.NO_CODE:
        return frame(Opcode.CLOSE, b"")
    text = reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + text)


def close_code(payload: bytes) -> int:
    """Which the peer says goodbye with. Raises Broken."""
    if not payload:
        return CloseCode.NO_CODE
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (code in _CLOSE_CODES or 3000 <= code < 5000):
        raise Broken(CloseCode.PROTOCOL_ERROR, "there is no such code to close with")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise Broken(CloseCode.BAD_TEXT, "the reason to close is not UTF-8") from None
    return code


def accept_key(key: bytes) -> bytes:
    """What proves that the server has read the handshake."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
