"""Queues for the doors that speak HTTP: what they ask of a queue, and who answers it."""
