"""Protocols that are not Kafka's, recognised by the first four bytes a peer sends.

Kafka's frames begin with their length. Read as one, these bytes are lengths of hundreds of megabytes, which tells an
operator nothing; `advice` says what the peer speaks and what to change.
"""

TLS_HANDSHAKE = b"\x16\x03"
HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
OTHERS = {b"SSH-": "SSH", b"AMQP": "AMQP", b"*1\r\n": "Redis's protocol", b"PING": "Redis's protocol"}
FIRST_BYTES = 4


def advice(first: bytes) -> str | None:
    """What a peer speaks whose first bytes these are, and what to do; None for what may be Kafka's."""
    if first.startswith(TLS_HANDSHAKE):
        return "the client speaks TLS and this listener is plaintext: set security.protocol=PLAINTEXT in the client"
    if first in HTTP_METHODS:
        return "the client speaks HTTP and this port speaks the Kafka protocol: use a Kafka client"
    if first in OTHERS:
        return f"the client speaks {OTHERS[first]} and this port speaks the Kafka protocol: use a Kafka client"
    return None
