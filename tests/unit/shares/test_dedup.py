"""De-duplication against a naive model, over leaders that change; mistakes planted and found."""

from random import Random

import pytest

from skidway.shares.dedup import WINDOW_MS, Dedup


class ProlongsTheWindow(Dedup):
    def find(self, dedup_id: str, now_ms: int) -> int | None:
        found = super().find(dedup_id, now_ms)
        if found is not None:
            self._order = type(self._order)((now_ms, digest) for _, digest in self._order)
        return found


class ForgetsLate(Dedup):
    def _forget(self, now_ms: int) -> None:
        super()._forget(now_ms - 1)


class ForgetsNothing(Dedup):
    def _forget(self, now_ms: int) -> None:
        pass


def _play(kind: type[Dedup], seed: int) -> None:
    random = Random(seed)
    dedup, now_ms = kind(), 1_000
    log: list[tuple[str, int]] = []
    for _ in range(200):
        now_ms += random.choice([0, 1, 999, WINDOW_MS // 3, WINDOW_MS // 2])
        dedup_id = random.choice("abcd")
        first = [at for at, (its, sent_ms) in enumerate(log) if its == dedup_id and sent_ms + WINDOW_MS > now_ms]
        assert dedup.find(dedup_id, now_ms) == (first[0] if first else None)
        if not first:
            dedup.note(dedup_id, len(log), now_ms)
            log.append((dedup_id, now_ms))
        if random.random() < 0.1:
            # Another leader reads the end of the log.
            dedup = kind()
            for at, (its, sent_ms) in enumerate(log):
                if sent_ms + WINDOW_MS > now_ms:
                    dedup.note(its, at, sent_ms)
        assert len(dedup) <= 4


@pytest.mark.parametrize("seed", range(20))
def test_an_id_is_known_for_five_minutes_from_its_first_send(seed: int) -> None:
    _play(Dedup, seed)


@pytest.mark.parametrize("mutant", [ProlongsTheWindow, ForgetsLate, ForgetsNothing])
def test_a_planted_mistake_is_found(mutant: type[Dedup]) -> None:
    with pytest.raises(AssertionError):
        _play_all(mutant)


def _play_all(mutant: type[Dedup]) -> None:
    for seed in range(20):
        _play(mutant, seed)
