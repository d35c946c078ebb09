"""How many records a run rejected and why, and when that is too many. No Spark in it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from skidway.spark.pipelines.options import BadPipeline

PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)\s*%")
REJECTED = "rejected"
NOT_TEXT = "the value is not UTF-8 text"
NOT_OBJECT = "the value is not a JSON object"
MISFIT = "a field does not have the type the schema gives it"


class TooManyRejected(RuntimeError):
    """More than the run was told to take. What it read is in its tables, rejected or not."""


def parse_share(text: str) -> float:
    """5% as 0.05."""
    match = PERCENT.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise BadPipeline(f"{text!r} is not a share; write 0%, 0.5% or 5%")
    return float(match[1]) / 100


def reasons_of(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """What is counted by reason among the counts of a status, and what else is."""
    mark = f"{REJECTED} ("
    reasons = {name[len(mark) : -1]: count for name, count in counts.items() if name.startswith(mark)}
    others = {name: count for name, count in counts.items() if name != REJECTED and not name.startswith(mark)}
    return reasons, others


@dataclass(slots=True)
class Rejects:
    """Of one run. `limit`: the share of what was read that may be rejected; None: all of it."""

    limit: float | None = None
    read: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.reasons.values())

    def add(self, read: int, reasons: dict[str, int]) -> None:
        self.read += read
        for reason, count in reasons.items():
            if count:
                self.reasons[reason] = self.reasons.get(reason, 0) + count

    def counts(self) -> dict[str, int]:
        """For the status: all of them, then by reason, the most frequent first."""
        if not self.reasons:
            return {}
        ordered = sorted(self.reasons.items(), key=lambda one: (-one[1], one[0]))
        return {REJECTED: self.total, **{f"{REJECTED} ({reason})": count for reason, count in ordered}}

    def check(self) -> None:
        if self.limit is None or self.total <= self.limit * self.read:
            return
        reason = max(self.reasons, key=lambda one: self.reasons[one])
        raise TooManyRejected(
            f"{self.total} of {self.read} records were rejected, more than {self.limit:.4g} of them"
            f" (--max-rejected); most often because {reason}"
        )
