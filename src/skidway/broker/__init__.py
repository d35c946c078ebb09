"""One node, composed from the machines below it; no sockets, no event loop."""
