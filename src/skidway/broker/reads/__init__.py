"""What readers ask for: fetch sessions, hints where to read, ends of logs."""
