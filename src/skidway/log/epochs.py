"""Which leader epoch wrote from which offset on: the memory behind fencing and truncation.

A function of the batches in the log; `leader-epoch-checkpoint` holds it for the part that recovery does not replay.
"""

from bisect import bisect_right

NO_EPOCH = (-1, -1)


class LeaderEpochs:
    """Epochs and the first offset of each, both strictly increasing but for an epoch that wrote nothing."""

    __slots__ = ("epochs", "starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []
        for epoch, start in entries or []:
            self.assign(epoch, start)

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self.epochs, self.starts, strict=True))

    def assign(self, epoch: int, start: int) -> bool:
        """Epoch `epoch` begins at offset `start`. False when that was known."""
        if epoch < 0 or (self.epochs and epoch <= self.epochs[-1]):
            return False
        while self.starts and self.starts[-1] >= start:
            # An epoch that wrote nothing leaves no trace in the log.
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start)
        return True

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """(the largest known epoch at most `epoch`, the offset where it ends); (-1, -1) when that is not known."""
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1]:
            return NO_EPOCH
        if epoch == self.epochs[-1]:
            return epoch, end_offset
        found = bisect_right(self.epochs, epoch)
        if found == 0:
            return epoch, self.starts[0]
        return self.epochs[found - 1], self.starts[found]

    def epoch_at(self, offset: int) -> int:
        found = bisect_right(self.starts, offset)
        return self.epochs[found - 1] if found else -1

    def truncate_to(self, end_offset: int) -> bool:
        before = len(self.epochs)
        while self.starts and self.starts[-1] >= end_offset:
            self.epochs.pop()
            self.starts.pop()
        return len(self.epochs) != before

    def forget_before(self, start_offset: int) -> bool:
        """The log now begins at `start_offset`: the epoch there begins there too, those before are gone."""
        found = bisect_right(self.starts, start_offset)
        if found == 0 or self.starts[0] == start_offset:
            return False
        del self.epochs[: found - 1]
        del self.starts[: found - 1]
        self.starts[0] = start_offset
        return True
