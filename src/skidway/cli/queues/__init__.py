"""Parts of `skidway queue`."""
