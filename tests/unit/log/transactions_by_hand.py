"""Transactional batches and markers, appended to a log as its leader would."""

from log_by_hand import NOW

from skidway.log.log import Log
from skidway.records.batch import read_header
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.records.record import Record, build_batch


def data_batch(
    producer_id: int, *, epoch: int = 0, sequence: int = 0, count: int = 1, size: int = 40, key: bytes = b"key"
) -> bytearray:
    records = [Record(number, NOW + number, key, b"v" * size, []) for number in range(count)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )


def write(log: Log, producer_id: int, *, epoch: int = 0, sequence: int = 0, count: int = 1, size: int = 40) -> int:
    """A batch of the producer's transaction, which begins with it if none is open. Returns its offset."""
    batch = data_batch(producer_id, epoch=epoch, sequence=sequence, count=count, size=size)
    return log.append(batch, read_header(batch), 0, NOW)


def end(
    log: Log, producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0, now_ms: int = NOW
) -> int:
    """The marker that ends the producer's transaction. Returns its offset."""
    marker = EndTransaction(committed, coordinator_epoch)
    batch = end_transaction_batch(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=now_ms)
    return log.append(batch, read_header(batch), 0, now_ms)
