"""WebSocket (RFC 6455) on a connection that began as HTTP."""
