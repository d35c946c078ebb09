"""What becomes of the values of records: their fields, what is masked, and what is rejected for which reason."""
