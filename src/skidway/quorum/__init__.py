"""The metadata quorum: Raft over `__cluster_metadata-0`, pull-based like KRaft. Pure: step and outbox."""
