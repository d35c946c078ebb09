"""The principal that travels in an Envelope request."""

from skidway.wire.message import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
