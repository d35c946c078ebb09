"""Compaction: only the newest record of each key stays; segments in, smaller segments out."""
