"""How a pipeline's query is run: started again while Spark's Python process is slow to start, and only then."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skidway.spark.pipelines import running
from skidway.spark.pipelines import status as status_of
from skidway.spark.pipelines.options import ONCE
from skidway.spark.pipelines.running import START_ATTEMPTS_MAX, Stop

SLOW = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


class Query:
    """A query that ends at once: well, or with an error, after so many batches."""

    def __init__(self, error: str | None, batches: int = 0) -> None:
        self.error = error
        offsets: dict[str, Any] = {"startOffset": None, "endOffset": None, "latestOffset": None}
        self.recentProgress = [
            {
                "batchId": number,
                "durationMs": {"addBatch": 1},
                "processedRowsPerSecond": 1.0,
                "sources": [offsets],
                "observedMetrics": {},
                "stateOperators": [{"numRowsDroppedByWatermark": 2}],
            }
            for number in range(batches)
        ]
        self.looked = False

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        if self.recentProgress and not self.looked:
            self.looked = True
            return False
        if self.error is not None:
            raise RuntimeError(self.error)
        return True


class Pipeline:
    name = "archive"

    def __init__(self, folder: Path, next_query: Callable[[int], Query]) -> None:
        self.options = SimpleNamespace(topic=["orders"], folder=lambda name: str(folder))
        self.next_query = next_query
        self.starts = 0

    def start(self, spark: Any, trigger: Any) -> Query:
        self.starts += 1
        return self.next_query(self.starts)


def test_a_query_starts_again_while_spark_finds_its_python_too_slow(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda start: Query(SLOW) if start < 3 else Query(None, batches=1))
    status = running.run(pipeline, None, ONCE, Stop())
    assert (pipeline.starts, status.state, status.batches, status.figures.late) == (3, "done", 1, 2)


def test_a_python_that_never_starts_fails_the_pipeline(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, lambda start: Query(SLOW))
    with pytest.raises(RuntimeError, match="failed to connect back"):
        running.run(pipeline, None, ONCE, Stop())
    assert pipeline.starts == START_ATTEMPTS_MAX
    status = status_of.read(tmp_path)
    assert status is not None
    assert status.state == "failed"


@pytest.mark.parametrize(
    "query", [Query("no broker answers"), Query(SLOW, batches=1)], ids=["another error", "after a batch"]
)
def test_any_other_failure_is_not_tried_again(tmp_path: Path, query: Query) -> None:
    pipeline = Pipeline(tmp_path, lambda start: query)
    with pytest.raises(RuntimeError):
        running.run(pipeline, None, ONCE, Stop())
    assert pipeline.starts == 1


def test_a_pipeline_that_is_stopped_does_not_start_again(tmp_path: Path) -> None:
    pipeline, stop = Pipeline(tmp_path, lambda start: Query(SLOW)), Stop()
    stop()
    with pytest.raises(RuntimeError):
        running.run(pipeline, None, ONCE, stop)
    assert pipeline.starts == 1
