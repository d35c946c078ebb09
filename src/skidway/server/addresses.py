"""Addresses as operators write them: HOST:PORT, and lists of nodes as NUMBER@HOST:PORT,…

Errors are ValueErrors with a sentence that says what is wrong and what was expected.
"""

from skidway.broker.listeners import Address
from skidway.limits import INT32_MAX

PORT_MAX = 65_535
NODES_MAX = 1_000


def parse_address(text: str) -> Address:
    """HOST:PORT, [IPv6]:PORT or :PORT."""
    host, colon, port_text = text.rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} is not an address: expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, such as [::1]:9092")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > PORT_MAX:
        raise ValueError(f"{text!r}: the port must be a number from 0 to {PORT_MAX}")
    return Address(host or "0.0.0.0", int(port_text))


def parse_nodes(text: str) -> dict[int, Address]:
    """`1@host:port,2@host:port`, every node and every address once. An empty text is nobody."""
    nodes: dict[int, Address] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        node_id, address = _parse_node(entry)
        if node_id in nodes:
            raise ValueError(f"node {node_id} is named twice: at {nodes[node_id]} and at {address}")
        if address in nodes.values():
            raise ValueError(f"two nodes have the address {address}: every node needs its own")
        nodes[node_id] = address
        if len(nodes) > NODES_MAX:
            raise ValueError(f"more than {NODES_MAX} nodes")
    return nodes


def _parse_node(entry: str) -> tuple[int, Address]:
    number, at, rest = entry.partition("@")
    if not at or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{entry!r}: expected NUMBER@HOST:PORT, such as 1@broker-1.example:9092")
    if len(number) > len(str(INT32_MAX)) or int(number) > INT32_MAX:
        raise ValueError(f"{entry!r}: the number of a node must be at most {INT32_MAX}")
    address = parse_address(rest)
    if address.is_wildcard or not address.port:
        raise ValueError(f"{entry!r}: expected a host and a port that the other nodes can connect to")
    return int(number), address
