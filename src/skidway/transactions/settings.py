"""What an operator may set about transactions, under Kafka's names."""

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
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
