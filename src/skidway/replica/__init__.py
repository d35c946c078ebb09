"""One partition's replication: who has what, and what is therefore committed. Pure."""
