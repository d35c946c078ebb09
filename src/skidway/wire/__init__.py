"""Bytes <-> messages; stateless."""
