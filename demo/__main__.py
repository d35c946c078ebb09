"""`python -m demo [--seconds 60] [--rate 300] [--out demo-output]`: everything at once, on this machine.

A broker, a generator of a clickstream and orders (late, double and broken events, one busy customer), and four ready
pipelines in one Spark session: archive (orders to Parquet), aggregate (page views by window, to a topic), route (orders
to topics, failures to dead letters) and insights. Then the results are read back, shown and held against what was sent.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.results import Results
from skidway.spark import session
from skidway.spark.pipelines import clickstream
from skidway.spark.pipelines.aggregate import Aggregate, AggregateOptions
from skidway.spark.pipelines.archive import Archive, ArchiveOptions
from skidway.spark.pipelines.insights import Insights, InsightsOptions
from skidway.spark.pipelines.options import Trigger
from skidway.spark.pipelines.route import Route, RouteOptions
from skidway.spark.pipelines.running import count
from skidway.spark.pipelines.status import Status, now_ms
from skidway.spark.pipelines.waiting import Waiting
from skidway.testing import Broker

TRIGGER = Trigger(2_000)
HISTORY_S = 60
"""Events from before the start: windows are over, and written, while one watches."""


@dataclass(slots=True)
class Running:
    """A pipeline, its query and what is known of its progress."""

    pipeline: Any
    query: Any = None
    status: Status = field(default_factory=lambda: Status(""))
    waiting: Waiting = field(default_factory=Waiting)
    seen: int = -1

    def look(self) -> None:
        error = self.query.exception()
        if error is not None:
            raise SystemExit(f"{self.pipeline.name} failed: {error}")
        for progress in self.query.recentProgress:
            if progress["batchId"] > self.seen and progress["durationMs"].get("addBatch") is not None:
                self.seen = progress["batchId"]
                count(self.status, progress, self.waiting, now_ms())


def pipelines(bootstrap: str, out: Path) -> list[Running]:
    def common(name: str, *topics: str) -> dict[str, Any]:
        checkpoint = str(out / "checkpoints" / name)
        return {"topic": list(topics), "bootstrap": bootstrap, "checkpoint": checkpoint, "group": f"demo-{name}"}

    orders, clicks = clickstream.ORDERS, clickstream.CLICKS
    archive = ArchiveOptions(
        **common("archive", orders),
        path=str(out / "lake" / "orders"),
        schema=clickstream.ORDER_SCHEMA,
        require=["event_id", "amount"],
        event_time="at",
        partition_by=["date", "hour"],
        files=1,
    )
    aggregate = AggregateOptions(
        **common("aggregate", clicks),
        window="10s",
        watermark="10s",
        event_time="at",
        group_by=["page"],
        measure=["count", "avg:load_ms"],
        to_topic="page-views",
    )
    route = RouteOptions(
        **common("route", orders),
        schema=clickstream.ORDER_SCHEMA,
        route=["orders-large: data.amount >= 100", "orders-small"],
        check=["has-amount: data.amount > 0"],
        set=["lines = size(data.items)"],
    )
    insights = InsightsOptions(
        **common("insights", clicks, orders), path=str(out / "insights"), event_time="at", report_every="1d"
    )
    return [
        Running(Archive(archive)),
        Running(Aggregate(aggregate)),
        Running(Route(route)),
        Running(Insights(insights)),
    ]


def shown(running: list[Running], left_s: float) -> Table:
    state = f"events for {left_s:.0f} more seconds" if left_s > 0 else "no more events: reading what is left"
    table = Table(title=state, title_justify="left")
    for name in ("pipeline", "batches", "records", "behind", "records/s", "last batch"):
        table.add_column(name, justify="left" if name == "pipeline" else "right")
    for one in running:
        status = one.status
        behind = "" if status.lag is None else f"{status.lag:,}"
        row = (f"{status.batches}", f"{status.records:,}", behind, f"{status.records_per_s:,.0f}")
        table.add_row(one.pipeline.name, *row, f"{status.last_batch_ms} ms")
    return table


def generator(bootstrap: str, seconds: float, rate: float) -> "subprocess.Popen[str]":
    words = ["--bootstrap", bootstrap, "--seconds", str(seconds), "--rate", str(rate), "--history", str(HISTORY_S)]
    command = [sys.executable, "-m", "skidway.spark.pipelines.clickstream", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def watch(running: list[Running], events: "subprocess.Popen[str]", seconds: float, console: Console) -> None:
    """Until the generator is done and every pipeline has read all of it."""
    ends_s = time.monotonic() + seconds
    with Live(console=console, refresh_per_second=2) as live:
        while events.poll() is None:
            for one in running:
                one.look()
            live.update(shown(running, max(0.0, ends_s - time.monotonic())))
            time.sleep(0.5)
        for one in running:
            live.update(shown(running, 0))
            one.query.processAllAvailable()
            one.look()
        live.update(shown(running, 0))


def run(seconds: float, rate: float, out: Path, console: Console) -> bool:
    console.print("starting a broker and Spark (the first time takes a few seconds)")
    with Broker(data_dir=out / "broker", flush="os") as broker:
        # The topics first: pipelines begin with what is there.
        clickstream.send(broker.bootstrap, [])
        spark = session.build("skidway-demo", say=console.print)
        running = pipelines(broker.bootstrap, out)
        events = generator(broker.bootstrap, seconds, rate)
        try:
            for one in running:
                one.query = one.pipeline.start(spark, TRIGGER)
                one.status.pipeline = one.pipeline.name
            watch(running, events, seconds, console)
            sent = told(events.stdout.read() if events.stdout else "")
            for one in running:
                one.query.stop()
            plots = running[3].pipeline.finish()
            return Results(spark, broker.bootstrap, out, sent, running[3].pipeline.findings(), plots).show(console)
        finally:
            events.kill()
            events.wait()
            spark.stop()


def told(line: str) -> dict[str, int]:
    """What the generator counted: "17 broken, 300 clicks, …"."""
    words = [part.split() for part in line.strip().split(", ") if part]
    return {name: int(number) for number, name in words}


def show_plots(report: Path, console: Console) -> None:
    if sys.stdout.isatty() and (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"
    ):
        webbrowser.open(report.as_uri())
    else:
        console.print(f"open {report} in a browser to see the plots")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long events come")
    parser.add_argument("--rate", type=float, default=300, help="events a second")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="where everything is written; emptied first"
    )
    chosen = parser.parse_args()
    out = chosen.out.resolve()
    marker = out / "demo.json"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        print(f"{out} is not empty and not from an earlier demo; name another folder with --out", file=sys.stderr)
        return 2
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.write_text(json.dumps({"seconds": chosen.seconds, "rate": chosen.rate}))
    console = Console()
    good = run(chosen.seconds, chosen.rate, out, console)
    show_plots(out / "insights" / "report.html", console)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
