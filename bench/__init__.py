"""Skidway measured: beside the machine's own limit, and beside Apache Kafka. Start at `bench/__main__.py`."""
