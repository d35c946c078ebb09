"""Streaming queries that end by themselves, on a machine that may be busy with other things."""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from skidway.spark.pipelines.running import SLOW_START, START_ATTEMPTS_MAX
from waiting import SPARK_PATIENCE_S


def to_the_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query, ended. Like `skidway pipeline run` it starts again while Spark's Python process starts too slowly."""
    for attempt in range(1, START_ATTEMPTS_MAX + 1):
        query = start()
        try:
            assert query.awaitTermination(int(SPARK_PATIENCE_S)), "the query does not end"
            break
        except StreamingQueryException as error:
            if SLOW_START not in str(error) or attempt == START_ATTEMPTS_MAX:
                raise
    return query
