"""Schedules of queues: messages that are delivered at a time far ahead, or again and again."""
