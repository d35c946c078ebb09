"""Amazon SQS in front of the queues of a cluster."""
