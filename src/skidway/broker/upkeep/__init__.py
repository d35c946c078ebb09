"""Work in the background: syncs, checkpoints, retention, compaction, scrubbing."""
