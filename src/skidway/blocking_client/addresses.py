"""Bootstrap lists: `host:port[,host:port…]`, IPv6 in brackets, port 9092 where none is given."""

from typing import NamedTuple

from skidway.blocking_client.errors import BadAddress

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    addresses = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise BadAddress(f"{text!r} names no broker; expected host:port, e.g. 127.0.0.1:{DEFAULT_PORT}")
    return addresses


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> Address:
    bare = text.partition("://")[2] or text
    if bare.startswith("["):
        host, bracket, rest = bare[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadAddress(f"{text!r} is not an address; expected [ipv6]:port")
        port = rest[1:]
    elif bare.count(":") > 1:
        raise BadAddress(f"{text!r} is not an address; write IPv6 as [{bare}]:{default_port}")
    else:
        host, _, port = bare.partition(":")
    if not host:
        raise BadAddress(f"{text!r} is not an address; expected host:port")
    if not port:
        return Address(host, default_port)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadAddress(f"{text!r} is not an address; the port must be a number from 1 to 65535")
    return Address(host, int(port))
