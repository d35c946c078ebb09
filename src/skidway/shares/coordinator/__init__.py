"""Share coordinators: what is durable of share-partitions, in `__share_group_state`."""
