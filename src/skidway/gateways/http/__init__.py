"""HTTP/1.1 in front of a node."""
