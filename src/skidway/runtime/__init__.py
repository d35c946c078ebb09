"""Hosts for machines: what waits, what is due, and how decisions become records. No I/O."""
