"""Share groups at the leaders of their partitions: records read, leased, settled."""
