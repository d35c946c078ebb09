"""How long the oldest record that a pipeline has not read has been waiting, by what was seen of its topics. Pure.

Records have no time that could be looked at without reading them. But when a batch begins, the source looks at the ends
of its partitions: a record below an end that was seen at noon has been there since noon. So what comes out is a time at
least; records that were there before the pipeline started count from its first look.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

Ends = Mapping[tuple[str, str], int]
LOOKS_MAX = 256
"""Kept. Beyond that every second one goes, but for the oldest."""


@dataclass(slots=True)
class Waiting:
    _looks: deque[tuple[int, Ends]] = field(default_factory=deque)

    def see(self, at_ms: int, latest: Ends, read: Ends) -> int | None:
        """Ends of partitions at a time, and how far they have been read since. Answers since when a record waits.

        A partition that is gone, with its topic, has none.
        """
        self._looks.append((at_ms, latest))
        while self._looks and all(
            end <= read.get(place, 0) or place not in latest for place, end in self._looks[0][1].items()
        ):
            self._looks.popleft()
        if len(self._looks) > LOOKS_MAX:
            self._looks = deque(one for n, one in enumerate(self._looks) if n % 2 == 0)
        return self._looks[0][0] if self._looks else None
