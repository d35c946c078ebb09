"""Queues at the leaders of their partitions: the share groups that brokers keep for them."""
