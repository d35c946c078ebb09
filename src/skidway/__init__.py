"""Skidway: a distributed message queue that Kafka clients talk to."""

__version__ = "0.1.0"
