"""Topics as a Spark source, batch and streaming."""
