"""What the demo's pipelines made, read back, shown, and held against what was sent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

from skidway.records import dead_letter_headers as letters
from skidway.spark.pipelines import clickstream
from skidway.spark.pipelines.report import Findings

SHOWN = 8


@dataclass(slots=True)
class Results:
    spark: SparkSession
    bootstrap: str
    out: Path
    sent: dict[str, int]
    found: Findings
    plots: list[Path]

    def show(self, console: Console) -> bool:
        """False when something is missing or too many."""
        console.rule("what was sent")
        console.print(", ".join(f"{number:,} {name}" for name, number in sorted(self.sent.items())))
        stored, rejected = self._archive(console)
        self._windows(console)
        routed = self._routes(console)
        self._insights(console)
        return self._balance(console, stored + rejected, routed)

    def _topic(self, name: str) -> DataFrame:
        reader = self.spark.read.format("skidway").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", name).option("includeHeaders", "true").load()

    def _archive(self, console: Console) -> tuple[int, int]:
        console.rule("archive: orders as Parquet")
        place = self.out / "lake" / "orders"
        orders = self.spark.read.parquet(str(place))
        by_country = orders.groupBy("value.country").agg(
            sf.count("*").alias("orders"), sf.round(sf.sum("value.amount"), 2).alias("amount")
        )
        _print(console, by_country.orderBy(sf.desc("orders")))
        console.print(f"files: {place}")
        stored, rejected = orders.count(), 0
        beside = Path(f"{place}-rejected")
        if beside.exists():
            bad = self.spark.read.parquet(str(beside))
            rejected = bad.count()
            console.print(f"what could not be parsed: {rejected:,} records in {beside}")
            _print(console, bad.groupBy("reason").count().orderBy(sf.desc("count")))
        return stored, rejected

    def _windows(self, console: Console) -> None:
        console.rule("aggregate: page views in windows of 10 s, in the topic page-views")
        fields = "window_start timestamp, page string, count long, avg_load_ms double"
        windows = self._topic("page-views").select(sf.from_json(sf.col("value").cast("string"), fields).alias("w"))
        newest = windows.select("w.*").orderBy(sf.desc("window_start"), sf.desc("count")).limit(SHOWN)
        _print(console, newest.withColumn("avg_load_ms", sf.round("avg_load_ms", 1)))

    def _routes(self, console: Console) -> int:
        console.rule("route: orders by amount; dead letters")
        names = ["orders-large", "orders-small", letters.dead_letter_topic(clickstream.ORDERS)]
        counts = {name: self._topic(name).count() for name in names}
        console.print(", ".join(f"{number:,} in {name}" for name, number in counts.items()))
        dead = self._topic(names[-1])
        headers = sf.map_from_entries(sf.transform("headers", lambda one: sf.struct(one["key"], one["value"])))
        reasons = dead.select(
            headers[letters.ERROR_TYPE].cast("string").alias("error"),
            headers[letters.ERROR_MESSAGE].cast("string").alias("reason"),
            sf.substring(sf.col("value").cast("string"), 1, 40).alias("example"),
        )
        grouped = reasons.groupBy("error", "reason").agg(
            sf.count("*").alias("letters"), sf.first("example").alias("one")
        )
        _print(console, grouped.orderBy(sf.desc("letters")).limit(SHOWN))
        return sum(counts.values())

    def _insights(self, console: Console) -> None:
        console.rule("insights: hot keys, skew, delay")
        table = Table("topic", "key", "records", "share", "partition")
        for key in self.found.keys[:SHOWN]:
            table.add_row(key.topic, key.key, f"{key.records:,}", f"{key.share:.1%}", str(key.partition))
        console.print(table)
        table = Table("topic", "partition", "records", "skew")
        for one in self.found.partitions:
            table.add_row(one.topic, str(one.partition), f"{one.records:,}", f"{one.skew:.2f}")
        console.print(table)
        console.print("plots: " + ", ".join(str(path) for path in self.plots))

    def _balance(self, console: Console, archived: int, routed: int) -> bool:
        """Every order is in the archive once, sound or rejected, and went one way in the routes."""
        console.rule("the balance")
        orders = self.sent.get(clickstream.ORDERS, 0)
        seen = sum(one.records for one in self.found.partitions)
        events = orders + self.sent.get(clickstream.CLICKS, 0)
        lines = [
            ("orders archived or rejected", archived, orders),
            ("orders routed or dead", routed, orders),
            ("events that insights saw", seen, events),
        ]
        for name, number, expected in lines:
            verdict = "[green]as sent[/green]" if number == expected else f"[red]{expected:,} were sent[/red]"
            console.print(f"{name}: {number:,}, {verdict}")
        return all(number == expected for _, number, expected in lines)


def _print(console: Console, frame: DataFrame) -> None:
    table = Table(*frame.columns)
    rows: list[Any] = frame.collect()
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table)
