"""Queues: making and describing them, their messages, what is scheduled for them."""
