"""Replication between nodes: what this one fetches, what others fetch from it, who is in sync."""
