"""The load of compaction: that it measures a compaction, and what came of it."""

from bench.compaction import measured


def test_a_log_is_filled_and_compacted() -> None:
    found = measured(2_000, 500)
    assert found.result.keys == 2_000
    assert found.result.records_kept + found.result.records_dropped == 2_500
    assert 0 < found.result.records_dropped <= 500
    assert 0 < found.left < found.size
