"""Headers of a queue's messages that the leaders of its partitions read. Doors and clients write them."""

QUEUE_DELIVER_AT = "skidway.deliver-at"
"""Nobody gets the message earlier: ms since 1970 in digits. It counts more than `deliver-at` and `delay`."""
DEDUP_ID = "skidway.dedup-id"
"""FIFO queues: a message with an id that was sent within five minutes is not sent again."""
