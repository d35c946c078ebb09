"""What the actions of SQS do."""
