"""How the quorum's log gets from the leader to the others: fetches, divergence, snapshots."""

from msgspec.structs import replace

from skidway.errors import CorruptMessage, ErrorCode, StorageError
from skidway.quorum.member import QuorumMember
from skidway.quorum.messages import (
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    SnapshotAnswer,
)
from skidway.quorum.snapshots import SNAPSHOT_BYTES_MAX
from skidway.quorum.storage import QuorumLog

CUT_OFF = "a committed record would be truncated"


def _refusal(quorum: QuorumMember, epoch: int) -> ErrorCode:
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if quorum.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_fetch(quorum: QuorumMember, request: Fetch, now_ms: int) -> FetchAnswer:
    if request.epoch > quorum.epoch:
        # A replica that stood in a later epoch and never was heard could not come back otherwise.
        quorum.become_unattached(request.epoch, now_ms)
    answer = fetch_answer(quorum, request)
    if answer.error:
        return answer
    assert quorum.followers is not None
    quorum.followers.on_heard(request.replica, now_ms)
    if answer.diverging is not None or answer.snapshot is not None:
        return answer
    quorum.followers.on_fetch(request.replica, request.offset, quorum.log.end_offset, now_ms)
    quorum.advance(now_ms)
    # What it asked for was looked up before: the watermark it moved belongs into the answer all the same.
    return replace(answer, high_watermark=quorum.high_watermark)


def fetch_answer(quorum: QuorumMember, request: Fetch) -> FetchAnswer:
    error = _refusal(quorum, request.epoch)
    if error:
        return FetchAnswer(quorum.epoch, quorum.leader, error=error)
    log = quorum.log
    snapshot = _needed_snapshot(log, request)
    if snapshot is not None:
        return FetchAnswer(quorum.epoch, quorum.leader, quorum.high_watermark, snapshot=snapshot)
    agreed = log.end_of_epoch(request.last_epoch)
    if request.offset > 0 and (agreed.epoch != request.last_epoch or agreed.end_offset < request.offset):
        return FetchAnswer(quorum.epoch, quorum.leader, quorum.high_watermark, diverging=agreed)
    return FetchAnswer(quorum.epoch, quorum.leader, quorum.high_watermark, log.read(request.offset))


def _needed_snapshot(log: QuorumLog, request: Fetch) -> EpochEnd | None:
    """What the replica has to fetch before the log is of use to it."""
    base = log.base
    if base.end_offset == 0:
        return None
    # Epochs before the log's have left no trace to compare with.
    behind = request.offset < base.end_offset or request.last_epoch < base.epoch
    if behind or (request.offset == base.end_offset and request.last_epoch != base.epoch):
        return log.snapshot
    return None


def on_fetch_answer(quorum: QuorumMember, request: Fetch, answer: FetchAnswer, now_ms: int) -> None:
    """The leader's answer to the fetch that was under way."""
    if answer.error:
        # It was asked as the leader of this epoch, and says it is not (any more).
        quorum.on_leader_failure(now_ms)
        quorum.try_later(now_ms)
        return
    log = quorum.log
    if (request.epoch, request.offset, request.last_epoch) != (quorum.epoch, log.end_offset, log.last_epoch):
        return
    quorum.heard_leader(now_ms)
    if answer.snapshot is not None:
        _begin_snapshot(quorum, answer.snapshot, now_ms)
        return
    quorum.fetched_from_leader = True
    if answer.diverging is not None:
        _truncate(quorum, answer.diverging, now_ms)
        return
    if answer.records:
        try:
            for offset, voters in quorum.log.append_fetched(answer.records):
                quorum.history.add(offset, voters)
        except (CorruptMessage, StorageError) as error:
            # Broken on its way or on the leader's disk, or no room here: nothing of it was taken; ask again.
            quorum.trouble = str(error)
            quorum.try_later(now_ms)
            return
    quorum.trouble = None
    quorum.high_watermark = max(quorum.high_watermark, min(answer.high_watermark, quorum.log.end_offset))


def _truncate(quorum: QuorumMember, diverging: EpochEnd, now_ms: int) -> None:
    mine = quorum.log.end_of_epoch(diverging.epoch)
    end = min(mine.end_offset, diverging.end_offset) if mine.epoch == diverging.epoch else mine.end_offset
    if end < quorum.high_watermark:
        # Two truths about what is committed: somebody lost what it had promised to keep. Not this node.
        quorum.trouble = f"{CUT_OFF}: the leader's log differs from {end} on, {quorum.high_watermark} was committed"
        quorum.try_later(now_ms)
        return
    try:
        quorum.log.truncate_to(end)
    except StorageError as error:
        quorum.trouble = str(error)
        quorum.try_later(now_ms)
        return
    quorum.history.truncate_to(end)


def on_fetch_snapshot(quorum: QuorumMember, request: FetchSnapshot, now_ms: int) -> SnapshotAnswer:
    error = _refusal(quorum, request.epoch)
    if error:
        return SnapshotAnswer(quorum.epoch, quorum.leader, error=error)
    assert quorum.followers is not None
    # Whoever fetches a snapshot is there: a long one must not look like a majority that is gone.
    quorum.followers.on_heard(request.replica, now_ms)
    found = quorum.log.read_snapshot(request.snapshot, request.position)
    if found is None:
        return SnapshotAnswer(quorum.epoch, quorum.leader, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    size, data = found
    if not 0 <= request.position < size:
        return SnapshotAnswer(quorum.epoch, quorum.leader, error=ErrorCode.POSITION_OUT_OF_RANGE)
    return SnapshotAnswer(quorum.epoch, quorum.leader, request.snapshot, size, request.position, data)


def on_snapshot_answer(quorum: QuorumMember, answer: SnapshotAnswer, now_ms: int) -> None:
    if quorum.fetching_snapshot is None:
        return
    if answer.error:
        # Replaced by a newer one in the meantime, perhaps: the next fetch tells.
        quorum.fetching_snapshot = None
        if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            quorum.on_leader_failure(now_ms)
        quorum.try_later(now_ms)
        return
    quorum.heard_leader(now_ms)
    if answer.snapshot != quorum.fetching_snapshot or answer.position != quorum.snapshot_position:
        return
    snapshot = quorum.fetching_snapshot
    try:
        if not answer.data or answer.size > SNAPSHOT_BYTES_MAX:
            raise CorruptMessage(f"{len(answer.data)} of {answer.size} bytes of a snapshot")
        quorum.snapshot_position = quorum.log.append_snapshot(answer.data)
        if quorum.snapshot_position < answer.size:
            return
        voters = quorum.log.finish_snapshot()
    except (CorruptMessage, StorageError) as error:
        quorum.trouble = str(error)
        quorum.fetching_snapshot = None
        quorum.try_later(now_ms)
        return
    quorum.fetching_snapshot = None
    quorum.history.begin_anew(snapshot.end_offset - 1, voters)
    quorum.high_watermark = max(quorum.high_watermark, snapshot.end_offset)


def _begin_snapshot(quorum: QuorumMember, snapshot: EpochEnd, now_ms: int) -> None:
    if snapshot.end_offset < quorum.high_watermark:
        # Older than what is known to be committed here: a mistake, or an attack.
        quorum.try_later(now_ms)
        return
    try:
        quorum.log.begin_snapshot(snapshot)
    except StorageError as error:
        quorum.trouble = str(error)
        quorum.try_later(now_ms)
        return
    quorum.fetching_snapshot = snapshot
    quorum.snapshot_position = 0
