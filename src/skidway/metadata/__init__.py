"""The controller: what the cluster knows of itself, and how that changes."""
