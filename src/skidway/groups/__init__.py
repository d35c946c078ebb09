"""Consumer groups and their offsets: one coordinator machine for each partition of `__consumer_offsets`."""
