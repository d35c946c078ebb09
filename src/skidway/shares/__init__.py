"""Share groups: records of a partition worked off one by one, by any number of consumers."""
