"""One picture of a run: throughput, CPU and latency of Skidway beside Apache Kafka and the machine's limit."""

from pathlib import Path
from typing import Any

import matplotlib

from bench.bars import LIMIT_OF
from bench.suite import Outcome

matplotlib.use("Agg")
from matplotlib import pyplot

COLOURS = {"skidway": "#1b7f79", "kafka": "#c9622b", "machine": "#9aa0a6"}
NAMES = {"skidway": "Skidway", "kafka": "Apache Kafka", "machine": "machine's limit"}
PRODUCE = {
    "p100l": "100 B\n128 KB",
    "p100s": "100 B\n16 KB",
    "p1kl": "1 KB\n128 KB",
    "p1ks": "1 KB\n16 KB",
}
FETCH = {"f1": "fetch\n1 MB", "f50": "fetch\n50 MB"}
RDKAFKA = {"rd100": "librdkafka\n100 B, 128 KB", "rd1k": "librdkafka\n1 KB, 16 KB", "rdconsume": "consume\n1 KB"}
LATENCY = {"lat1": "acks=1", "latall": "acks=all\nflush=os", "latsync": "acks=all\nflush=sync"}


def bars(axes: Any, outcome: Outcome, loads: dict[str, str], figure: str, title: str) -> None:
    """Grouped bars, one group per load; the limit only where there is one."""
    for place, subject in enumerate(("skidway", "kafka", "machine")):
        heights = []
        for load in loads:
            key = LIMIT_OF.get(load, "") if subject == "machine" else load
            heights.append(outcome.get(subject, key, figure))
        if all(height is None for height in heights):
            continue
        at = [index + (place - 1) * 0.27 for index in range(len(loads))]
        drawn = axes.bar(at, [height or 0 for height in heights], 0.25, color=COLOURS[subject], label=NAMES[subject])
        labels = ["" if height is None else f"{height:,.0f}" if height >= 10 else f"{height:.2g}" for height in heights]
        axes.bar_label(drawn, labels, fontsize=8, padding=2)
    axes.set_xticks(range(len(loads)), list(loads.values()), fontsize=9)
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.15)


def draw(outcome: Outcome, title: str, path: Path) -> None:
    figure, grid = pyplot.subplots(2, 3, figsize=(16, 9), constrained_layout=True)
    bars(grid[0][0], outcome, PRODUCE, "mb", "Produce, prepared frames, acks=1: MB/s (more is better)")
    bars(grid[0][1], outcome, PRODUCE, "cpu_gb", "Broker CPU seconds per GB produced (less is better)")
    bars(grid[0][2], outcome, RDKAFKA, "mb", "Through librdkafka: MB/s (more is better)")
    bars(grid[1][0], outcome, FETCH, "mb", "Fetch: MB/s (more is better)")
    bars(grid[1][1], outcome, FETCH, "cpu_gb", "Broker CPU seconds per GB fetched (less is better)")
    bars(grid[1][2], outcome, LATENCY, "p99", "p99 at 5,000 messages/s: ms (less is better)")
    figure.suptitle(title, fontsize=10, color="#555555")
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        handles.update({label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)})
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
