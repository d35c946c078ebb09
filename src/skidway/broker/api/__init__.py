"""The APIs of a node: which there are, who calls them, and what a caller needs for each."""
