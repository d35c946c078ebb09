"""Topics as a Spark sink, batch and streaming."""
