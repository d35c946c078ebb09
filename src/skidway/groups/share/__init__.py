"""Share groups (KIP-932): members, what each is assigned, which share-partitions have a state."""
