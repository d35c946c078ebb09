"""How long a member bears with things as they are: without a leader, with a silent one, as a candidate.

`deadline_ms` is when it is over, whatever the role. Waits for others are drawn, so that members that begin to wait at
the same moment do not end at the same moment.
"""

from skidway.ports import Random
from skidway.quorum.settings import QuorumSettings

NEVER = 2**62
LEADER_FAILURES_MAX = 2
"""Fetches in a row without an answer after which a follower no longer believes in its leader."""


class Patience:
    __slots__ = ("_leader_failures", "_random", "_settings", "deadline_ms")

    def __init__(self, settings: QuorumSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._leader_failures = 0
        """Fetches in a row that the leader did not answer, or refused."""
        self.deadline_ms = NEVER

    def begin_anew(self) -> None:
        """In another role: what a leader failed to do is forgotten."""
        self._leader_failures = 0

    def await_election(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self._settings.election_timeout_ms
        self.deadline_ms += self._random.randrange(self._settings.election_timeout_ms)

    def await_leader(self, place: int, now_ms: int) -> None:
        """It was heard of just now. For `place` see `await_turn`."""
        self._leader_failures = 0
        self.deadline_ms = now_ms + self._settings.fetch_timeout_ms + self._turn_ms(place)

    def await_turn(self, place: int, now_ms: int) -> None:
        """Voters that lose their leader at the same time stand one after the other, each in its place."""
        self.end_by(now_ms + self._turn_ms(place))

    def await_rival(self, now_ms: int) -> None:
        """The votes of this epoch may be spent: another one soon, but not at the same moment as a rival."""
        pause_ms = 2 * self._settings.retry_ms + self._random.randrange(self._settings.election_timeout_ms // 2)
        self.end_by(now_ms + pause_ms)

    def end_by(self, deadline_ms: int) -> None:
        self.deadline_ms = min(self.deadline_ms, deadline_ms)

    def on_leader_failure(self) -> bool:
        """It did not answer, or refused; true when that is once too often."""
        self._leader_failures += 1
        return self._leader_failures == LEADER_FAILURES_MAX

    def _turn_ms(self, place: int) -> int:
        return 2 * self._settings.retry_ms * place + self._random.randrange(self._settings.retry_ms)
