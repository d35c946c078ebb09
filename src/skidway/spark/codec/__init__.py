"""Record batches <-> Arrow columns."""
