"""Where each field of a batch header stands in the tuple that `batch.HEADER` unpacks.

The log reads the headers of every batch it recovers, copies or compacts, and makes no `BatchHeader` of each. The order
is that of `BatchHeader`'s fields.
"""

(
    BASE_OFFSET,
    BATCH_LENGTH,
    LEADER_EPOCH,
    MAGIC_BYTE,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    RECORD_COUNT,
) = range(13)
