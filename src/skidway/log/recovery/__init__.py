"""Opening a directory after a stop or a crash: what can be believed, what is replayed, what is cut."""
