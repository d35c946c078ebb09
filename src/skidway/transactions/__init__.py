"""Transaction coordinators: which producer writes under a transactional id, and how its transactions end."""
