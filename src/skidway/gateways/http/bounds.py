"""Bounds of HTTP, each checked before anything is allocated for what it bounds."""

from skidway.limits import KIB, MIB

REQUEST_LINE_BYTES_MAX = 8 * KIB
HEADERS_MAX = 100
HEADERS_BYTES_MAX = 32 * KIB
HEAD_BYTES_MAX = REQUEST_LINE_BYTES_MAX + HEADERS_BYTES_MAX
BODY_BYTES_MAX = 2 * MIB
"""Of a request about one thing."""
BATCH_BYTES_MAX = 10 * MIB
"""Of a request about many things."""
CHUNK_SLACK_BYTES = 16 * KIB
"""So much more than its content the framing of a chunked body may take: a chunk for every byte would be all work."""
TRAILER_BYTES_MAX = 8 * KIB
JSON_DEPTH_MAX = 64
DISCARDED_BYTES_MAX = 16 * MIB
"""After a refusal, what the peer is still sending is read and dropped up to this: a connection that is closed before
takes the refusal with it."""
DISCARD_MS_MAX = 2_000
