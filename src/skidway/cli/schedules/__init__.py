"""`skidway queue schedule`."""
