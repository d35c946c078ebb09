"""SaslHandshake (key 17), v0–v1."""

from skidway.wire.message import Message, array, int16, string


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array("string", "0+")
