"""What is inside a produce request: record batches, records, compression and the checks on them."""
