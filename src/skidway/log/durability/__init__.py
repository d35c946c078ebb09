"""What is on the disk and what is not yet: syncs, tickets for workers, checkpoints."""
