"""Ready pipelines over topics: each a module with its options and a class, for programs and for `skidway pipeline`.

    from skidway.spark.pipelines.archive import Archive, ArchiveOptions
    query = Archive(ArchiveOptions(topic=["orders"], path="lake/orders")).start(spark)

Nothing here imports Spark before a pipeline is loaded.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(slots=True, frozen=True)
class Entry:
    module: str
    pipeline: str
    options: str
    summary: str

    def load(self) -> tuple[type[Any], type[Any]]:
        """The pipeline's class and that of its options. Imports Spark."""
        module = import_module(f"{__name__}.{self.module}")
        return getattr(module, self.pipeline), getattr(module, self.options)


CATALOGUE = {
    "archive": Entry("archive", "Archive", "ArchiveOptions", "topics into Parquet, Delta or Iceberg, exactly once"),
    "merge": Entry("merge", "Merge", "MergeOptions", "change data into a Delta or Iceberg table, one row for each key"),
    "aggregate": Entry(
        "aggregate", "Aggregate", "AggregateOptions", "counts and sums over windows of time, to a topic or a table"
    ),
    "dedupe": Entry("dedupe", "Dedupe", "DedupeOptions", "copy a topic to another one, without its duplicates"),
    "route": Entry(
        "route",
        "Route",
        "RouteOptions",
        "filter, split and enrich by SQL, to topics; failures go to a dead-letter topic",
    ),
    "replay": Entry("replay", "Replay", "ReplayOptions", "a slice of history, filtered, back to a topic"),
    "insights": Entry(
        "insights", "Insights", "InsightsOptions", "hot keys, skew, throughput and delay: tables and plots"
    ),
}
