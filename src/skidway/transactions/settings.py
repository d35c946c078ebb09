"""What an operator may set about transactions, under Kafka's names."""

import msgspec

DAY_MS = 24 * 60 * 60 * 1_000


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    timeout_ms_max: int = 900_000
    """transaction.max.timeout.ms"""
    timeout_check_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    id_expiration_ms: int = 7 * DAY_MS
    """transactional.id.expiration.ms"""
    id_expiration_check_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    state_partitions: int = 50
    """transaction.state.log.num.partitions"""
    ids_max: int = 100_000
    """Transactional ids that one coordinator remembers. Not a setting: a bound."""
    partitions_max: int = 10_000
    """Partitions in one transaction. Not a setting: a bound."""
    node_id_bytes_max: int = 256 << 20
    """Memory for the ids of all coordinators of a node, as it is estimated: 600 bytes and the name, so some 400,000
    ids. Not a setting: a bound."""
    node_partitions_max: int = 1_000_000
    """Partitions of all open transactions of these, counted once for each transaction. Not a setting: a bound."""
    first_epoch: int = 0
    """Of a new transactional id. Not a setting: tests begin near the end of epochs."""
