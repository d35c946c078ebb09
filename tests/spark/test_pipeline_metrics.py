"""What Prometheus hears of pipelines, over a real socket, read by its own parser. Without Spark."""

import http.client
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from skidway.cli.main import main as skidway
from skidway.spark.pipelines import status as status_of
from skidway.spark.pipelines.archive import ArchiveOptions
from skidway.spark.pipelines.metrics import page, serve
from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.status import DONE, Figures, Status, Watched, watched
from skidway.spark.pipelines.waiting import LOOKS_MAX, Waiting

NOW_MS = 1_794_787_200_000
UNTRUE = 'not true: name = "x\\y"\n'
EXPECTED = {
    "running",
    "start_timestamp_seconds",
    "batches_total",
    "batch_seconds_total",
    "records_total",
    "rows_total",
    "files_total",
    "bytes_total",
    "late_rows_total",
    "last_batch_seconds",
    "last_commit_timestamp_seconds",
    "lag_records",
    "lag_seconds",
    "rejected_total",
    "counted_total",
}


def orders() -> Status:
    return Status(
        "archive",
        ["orders"],
        "orders",
        started_ms=NOW_MS - 60_000,
        batches=3,
        last_batch_ms=1500,
        records=1000,
        lag=17,
        figures=Figures(4500, NOW_MS - 2_000, NOW_MS - 2_500, rows=990, files=6, bytes=12_345, late=4),
        counts={
            "rejected": 10,
            f"rejected ({UNTRUE})": 7,
            "rejected (the value is null)": 3,
            "dead": 5,
        },
    )


def parsed(text: str) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert set(sample.labels) >= {"pipeline", "kind"}
            more = [value for name, value in sample.labels.items() if name not in ("pipeline", "kind")]
            key = (sample.name.removeprefix("skidway_pipeline_"), sample.labels["pipeline"], *more)
            assert key not in found, "a sample must be there once"
            found[key] = sample.value
    return found


def test_the_page_is_as_prometheus_reads_it() -> None:
    found = parsed(page({"orders": orders(), "clicks": Status("route", ["clicks"], "clicks", DONE)}, NOW_MS).decode())
    assert {key[0] for key in found} == EXPECTED
    of_orders = {key[0]: value for key, value in found.items() if key[1:] == ("orders",)}
    assert of_orders == {
        "running": 1,
        "start_timestamp_seconds": NOW_MS / 1000 - 60,
        "batches_total": 3,
        "batch_seconds_total": 4.5,
        "last_batch_seconds": 1.5,
        "last_commit_timestamp_seconds": NOW_MS / 1000 - 2,
        "records_total": 1000,
        "rows_total": 990,
        "files_total": 6,
        "bytes_total": 12_345,
        "late_rows_total": 4,
        "lag_records": 17,
        "lag_seconds": 2.5,
    }
    assert found["rejected_total", "orders", UNTRUE] == 7
    assert found["rejected_total", "orders", "the value is null"] == 3
    assert found["counted_total", "orders", "dead"] == 5
    # Of one that has not read anything yet nothing is made up.
    assert found["running", "clicks"] == 0
    assert ("lag_records", "clicks") not in found
    assert ("last_commit_timestamp_seconds", "clicks") not in found


def test_a_listener_answers_scrapes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "_statuses", {})
    watched.enter(orders(), "pipelines/orders")
    listener = serve("127.0.0.1:0")
    try:
        with socket.create_connection(("127.0.0.1", listener.port)):  # One that says nothing holds up nobody for long.
            for path, code in (("/metrics", 200), ("/metrics?a=b", 200), ("/", 200), ("/etc/passwd", 404)):
                connection = http.client.HTTPConnection("127.0.0.1", listener.port)
                connection.request("GET", path)
                answer = connection.getresponse()
                text = answer.read().decode()
                assert answer.status == code
                if code == 200:
                    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                    assert parsed(text)["records_total", "orders"] == 1000
                connection.close()
        with pytest.raises(BadPipeline, match=f"cannot listen at 127.0.0.1:{listener.port}"):
            serve(f"127.0.0.1:{listener.port}")
    finally:
        listener.close()
    with pytest.raises(BadPipeline, match="is not an address"):
        serve("9101")


def test_pipelines_of_one_name_are_known_apart() -> None:
    seen = Watched()
    first, second, third = (Status("archive", ["t"], "orders") for _ in range(3))
    seen.enter(first, "a")
    seen.enter(second, "b")
    assert seen.all() == {"orders": first, "orders (b)": second}
    seen.enter(third, "a")
    assert seen.all()["orders"] is third
    third.state = DONE
    again = Status("archive", ["t"], "orders")
    seen.enter(again, "c")
    assert seen.all() == {"orders": again, "orders (b)": second}


def test_how_long_the_oldest_unread_record_waits() -> None:
    waiting, one, two = Waiting(), ("t", "0"), ("t", "1")
    assert waiting.see(1_000, {one: 10, two: 5}, {one: 10, two: 5}) is None
    assert waiting.see(2_000, {one: 12, two: 5}, {one: 11, two: 5}) == 2_000
    assert waiting.see(3_000, {one: 20, two: 9}, {one: 11, two: 5}) == 2_000
    # What was there at 2,000 has been read; record 5 of the other partition was seen at 3,000.
    assert waiting.see(4_000, {one: 30, two: 9}, {one: 30, two: 5}) == 3_000
    assert waiting.see(5_000, {one: 30, two: 9}, {one: 30, two: 9}) is None
    assert waiting.see(6_000, {one: 30, two: 12}, {one: 30, two: 9}) == 6_000
    assert waiting.see(7_000, {one: 30}, {one: 30}) is None
    for at in range(10 * LOOKS_MAX):
        assert waiting.see(at, {one: 31 + at}, {one: 30}) == 0
    assert len(waiting._looks) <= LOOKS_MAX + 1


def test_names_choose_checkpoints_and_tell_pipelines_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def options(**more: Any) -> ArchiveOptions:
        return ArchiveOptions(topic=["t"], path="x", **more)

    assert options().folder("archive") == "pipelines/archive"
    assert options(name="orders").folder("archive") == "pipelines/orders"
    assert options(name="orders", checkpoint="here").folder("archive") == "here"
    for name in ("", "a/b", "..", "x" * 101):
        with pytest.raises(BadPipeline, match="is not a name"):
            options(name=name)
    status_of.write(Status("archive", ["orders"], state=DONE), tmp_path / "by-folder")
    status_of.write(Status("archive", ["orders"], "by-name", DONE), tmp_path / "other")
    assert skidway(["pipeline", "status", str(tmp_path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["NAME", "PIPELINE", "TOPICS"]
    assert [line.split()[:2] for line in lines] == [["by-folder", "archive"], ["by-name", "archive"]]


def test_the_progress_of_another_pipeline_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status_of.write(Status("archive", ["orders", "clicks"], state=DONE, batches=3), Path("pipelines/archive"))
    run = ["pipeline", "run", "archive", "--path", "table", "--topic"]
    assert skidway([*run, "views"]) == 2
    refusal = capsys.readouterr().err
    assert "is that of archive of orders, clicks, and not of archive of views" in refusal
    assert "--name archive-views" in refusal
    assert skidway([*run, "views", "--checkpoint", "pipelines/archive"]) == 2
    status_of.check_own(Path("pipelines/archive"), "archive", ["clicks", "more"])
    status_of.check_own(Path("pipelines/other"), "archive", ["views"])
    with pytest.raises(BadPipeline, match="and not of dedupe of orders"):
        status_of.check_own(Path("pipelines/archive"), "dedupe", ["orders"])
