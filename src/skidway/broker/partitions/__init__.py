"""The partitions of this node: their logs, roles and settings, and what the metadata says of them."""
