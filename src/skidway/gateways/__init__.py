"""Doors to a node for those who do not speak Kafka's protocol. Like the node they own no socket, thread or clock."""
