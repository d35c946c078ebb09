"""The picture of the README: figures beside Apache Kafka, drawn from the newest such run in bench/RESULTS.md.

`python -m bench.picture` writes docs/pictures/beside-kafka.svg; `make bench-kafka` does so after a recorded run.

Nothing is measured or typed in here: every number is a cell of a table in RESULTS.md, and the footer names the run.
The SVG is plain text without fonts or scripts from elsewhere, so that it looks the same offline.
"""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "RESULTS.md"
PICTURE = ROOT / "docs" / "pictures" / "beside-kafka.svg"
HEADING = re.compile(r"^(\d{4}-\d{2}-\d{2}) \d{2}:\d{2} UTC beside Apache Kafka$")
MACHINE = re.compile(r"; (\d+ cores \([^)]*\), \d+ GB), .*?; medians of (\d+) rounds")
KAFKA_LINE = "4.3"
"""bench/kafka.py runs this line of releases; the recorded runs do not name the patch version."""

WIDTH, PANEL_HEIGHT, TOP, SIDE = 860, 92, 20, 24
COLUMN = (WIDTH - 3 * SIDE) // 2
NAME_WIDTH, BAR_MAX, BAR_HEIGHT = 64, 184, 20
COLOURS = {"Skidway": "#1b7f79", "Kafka": "#b9bec4"}


@dataclass(frozen=True, slots=True)
class Panel:
    """Which cells to draw: a row of a table, the first number in a cell that is followed by `unit`."""

    title: str
    table: str
    row: str
    unit: str
    less_is_better: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One section of RESULTS.md."""

    day: str
    machine: str
    rounds: str
    text: str


FIRST_OF_PAIR = " /"
PANELS = (
    Panel("Start-up, seconds", "Footprint", "start-up, s", "", True),
    Panel(
        "Memory after 1 GB in and out, MB",
        "Footprint",
        "resident after 1 GB in and out, MB",
        "",
        True,
    ),
    Panel(
        "Produce, 100-byte messages: million/s",
        "Throughput",
        "produce 100 B, 128 KB batches",
        " M msg/s",
        False,
    ),
    Panel(
        "Broker CPU seconds per GB produced",
        "Broker CPU seconds per GB",
        "produce 100 B, 128 KB batches",
        FIRST_OF_PAIR,
        True,
    ),
    Panel(
        "Produce, 1 KB, fsync before ack: MB/s",
        "Throughput",
        "produce 1 KB, 16 KB, acks=all, flush=sync",
        " MB/s",
        False,
    ),
    Panel(
        "Fetch, replies of 50 MB: MB/s",
        "Throughput",
        "fetch 1 KB messages, 50 MB a reply",
        " MB/s",
        False,
    ),
)


def newest_run(results: str) -> Run:
    """The newest run in which both brokers took turns, with every figure that is drawn."""
    for section in results.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        named, machine = HEADING.match(heading), MACHINE.search(text)
        if named and machine:
            run = Run(named[1], machine[1], machine[2], text)
            if all(figures(run, panel) is not None for panel in PANELS):
                return run
    raise SystemExit("RESULTS.md has no complete run beside Apache Kafka")


def figures(run: Run, panel: Panel) -> tuple[str, str] | None:
    """Skidway's and Kafka's figure, as recorded."""
    _, _, table = run.text.partition(f"**{panel.table}")
    for line in table.partition("\n**")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == panel.row:
            found = [re.search(rf"(?:^|\s)([\d.,]+){re.escape(panel.unit)}", cell) for cell in cells[1:3]]
            if len(found) == 2 and found[0] and found[1]:
                return found[0][1], found[1][1]
    return None


def amount(figure: str) -> float:
    return float(figure.replace(",", ""))


def lead(panel: Panel, values: list[float]) -> tuple[int, str]:
    """Who is ahead (0: Skidway, 1: Kafka), and by how much."""
    factor = max(values) / min(values)
    first = values.index(min(values) if panel.less_is_better else max(values))
    return first, f"{factor:.{0 if factor >= 10 else 1}f}× better"


def draw(run: Run) -> str:
    rows = (len(PANELS) + 1) // 2
    height = TOP + rows * PANEL_HEIGHT + 46
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f"<title>Skidway and Apache Kafka {KAFKA_LINE} on one machine, {run.day}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff" stroke="#d8dce0"/>',
    ]
    for place, panel in enumerate(PANELS):
        left = SIDE + (place % 2) * (COLUMN + SIDE)
        lines += draw_panel(run, panel, left, TOP + (place // 2) * PANEL_HEIGHT)
    first = f"Skidway and Apache Kafka {KAFKA_LINE}, one broker each, in turns on one machine: {run.machine}."
    second = f"Run of {run.day}, medians of {run.rounds} rounds, prepared requests; all figures: bench/RESULTS.md"
    for number, text in enumerate((first, second)):
        at = height - 30 + number * 16
        lines.append(f'<text x="{SIDE}" y="{at}" font-size="11.5" fill="#667078">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def draw_panel(run: Run, panel: Panel, left: int, top: int) -> list[str]:
    pair = figures(run, panel)
    assert pair is not None
    values = [amount(figure) for figure in pair]
    ahead, by = lead(panel, values)
    lines = [
        f'<text x="{left}" y="{top + 14}" font-size="14" font-weight="600" fill="#20262b">{escape(panel.title)}</text>',
        f'<text x="{left + COLUMN}" y="{top + 14}" font-size="11.5" text-anchor="end" fill="#667078">'
        f"{'less' if panel.less_is_better else 'more'} is better</text>",
    ]
    for number, (name, figure, value) in enumerate(zip(COLOURS, pair, values, strict=True)):
        at = top + 24 + number * (BAR_HEIGHT + 4)
        bar = max(2.0, BAR_MAX * value / max(values))
        after = left + NAME_WIDTH + bar + 8
        lines += [
            f'<text x="{left}" y="{at + 15}" font-size="13" fill="#20262b">{name}</text>',
            f'<rect x="{left + NAME_WIDTH}" y="{at}" width="{bar:.1f}" height="{BAR_HEIGHT}" rx="3" '
            f'fill="{COLOURS[name]}"/>',
            f'<text x="{after:.1f}" y="{at + 15}" font-size="13" font-weight="600" fill="#20262b">{figure}</text>',
        ]
    at = top + 39 + ahead * (BAR_HEIGHT + 4)
    lines.append(
        f'<text x="{left + COLUMN}" y="{at}" font-size="12" text-anchor="end" fill="#1b7f79" font-weight="600">'
        f"{by}</text>"
    )
    return lines


def write() -> None:
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(newest_run(RESULTS.read_text())))


def main() -> None:
    write()
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
