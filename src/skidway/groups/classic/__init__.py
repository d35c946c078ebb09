"""The classic protocol: JoinGroup, SyncGroup, generations."""
