"""OpenLineage events of a run, without Spark: what is in them, when they are sent and to where."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from skidway.spark.pipelines import lineage
from skidway.spark.pipelines.archive import ArchiveOptions
from skidway.spark.pipelines.dedupe import DedupeOptions
from skidway.spark.pipelines.lineage import Lineage, open_sender, outputs_of
from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.route import RouteOptions
from skidway.spark.pipelines.status import DONE, FAILED, STOPPED, Figures, Status

OPTIONS = ArchiveOptions(topic=["orders", "users"], bootstrap="one:9092,two:9092", path="s3a://lake/of/orders")


@dataclass(slots=True)
class Run:
    """A run whose clock stands still, and what was sent of it."""

    events: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    now_s: float = 0.0
    status: Status = field(default_factory=lambda: Status("archive", ["orders", "users"], "orders"))

    def lineage(self, options: Any = OPTIONS) -> Lineage:
        return Lineage(
            lambda event: self.events.append(json.loads(event)),
            options,
            self.warnings.append,
            namespace="shop",
            clock=lambda: self.now_s,
        )

    @property
    def kinds(self) -> list[str]:
        return [event["eventType"] for event in self.events]


def test_a_run_begins_goes_on_and_ends() -> None:
    run = Run()
    seen = run.lineage()
    for _ in range(3):
        seen.see(run.status)
    assert run.kinds == ["START"]
    run.now_s = 3 * lineage.INTERVAL_S
    seen.see(run.status)
    assert run.kinds == ["START"]  # Nothing has happened.
    run.status.batches = 1
    for _ in range(3):
        seen.see(run.status)
    run.status.batches, run.now_s = 5, run.now_s + lineage.INTERVAL_S - 1
    seen.see(run.status)
    assert run.kinds == ["START", "RUNNING"]
    run.status.state = DONE
    run.status.figures = Figures(rows=10, files=2, bytes=300)
    for _ in range(2):
        seen.see(run.status)
    assert run.kinds == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in run.events}) == 1


def test_an_event_has_what_openlineage_asks_for() -> None:
    run = Run()
    run.status.state, run.status.error = FAILED, "it broke"
    run.status.figures = Figures(rows=10, files=2, bytes=300)
    run.lineage().see(run.status)
    start, end = run.events
    assert "errorMessage" not in start["run"]["facets"]
    UUID(end["run"].pop("runId"))
    assert datetime.fromisoformat(end.pop("eventTime")).tzinfo is not None
    about = {"_producer": "urn:skidway"}
    facets = "https://openlineage.io/spec/facets"
    assert end == {
        "eventType": "FAIL",
        "run": {
            "facets": {
                "errorMessage": {
                    **about,
                    "_schemaURL": f"{facets}/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
                    "message": "it broke",
                    "programmingLanguage": "PYTHON",
                }
            }
        },
        "job": {
            "namespace": "shop",
            "name": "orders",
            "facets": {
                "jobType": {
                    **about,
                    "_schemaURL": f"{facets}/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
                    "processingType": "STREAMING",
                    "integration": "SPARK",
                    "jobType": "JOB",
                }
            },
        },
        "inputs": [
            {"namespace": "kafka://one:9092", "name": "orders"},
            {"namespace": "kafka://one:9092", "name": "users"},
        ],
        "outputs": [
            {
                "namespace": "s3://lake",
                "name": "of/orders",
                "outputFacets": {
                    "outputStatistics": {
                        **about,
                        "_schemaURL": f"{facets}/1-0-2/OutputStatisticsOutputDatasetFacet.json"
                        "#/$defs/OutputStatisticsOutputDatasetFacet",
                        "rowCount": 10,
                        "size": 300,
                        "fileCount": 2,
                    }
                },
            }
        ],
        "producer": "urn:skidway",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def test_a_run_that_is_stopped_is_aborted() -> None:
    run = Run()
    run.status.state = STOPPED
    run.lineage().see(run.status)
    assert run.kinds == ["START", "ABORT"]


def test_outputs_are_tables_and_topics(tmp_path: Path) -> None:
    table = ArchiveOptions(topic=["t"], path=str(tmp_path / "x"))
    assert outputs_of(table) == [{"namespace": "file", "name": str(tmp_path / "x")}]
    judged = ArchiveOptions(topic=["t"], path="s3://lake/x", parse="json")
    assert [one["name"] for one in outputs_of(judged)] == ["x", "x-rejected"]
    copy = DedupeOptions(topic=["t"], to_topic="once", id="id")
    assert outputs_of(copy) == [{"namespace": "kafka://127.0.0.1:9092", "name": "once"}]
    split = RouteOptions(topic=["t"], route=["big: data.amount > 5", "small", "big: true"], schema="amount int")
    assert [one["name"] for one in outputs_of(split)] == ["big", "small"]
    for path, namespace, name in (
        ("gs://b/c", "gs://b", "c"),
        ("s3://b", "s3://b", "/"),
        ("file:///a/b", "file", "/a/b"),
    ):
        assert outputs_of(ArchiveOptions(topic=["t"], path=path)) == [{"namespace": namespace, "name": name}]


def test_a_backend_that_is_down_stops_nothing_and_is_warned_of_once() -> None:
    run = Run()

    def refuse(event: bytes) -> None:
        raise OSError("it answers 500")

    seen = run.lineage()
    seen.send = refuse
    seen.see(run.status)
    run.status.state = DONE
    seen.see(run.status)
    assert run.warnings == ["lineage: events cannot be sent, and the pipeline goes on without: it answers 500"]


def test_events_are_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    send = open_sender(str(file))
    send(b'{"a": 1}')
    open_sender(str(file))(b'{"a": 2}')
    assert file.read_text() == '{"a": 1}\n{"a": 2}\n'


@contextmanager
def backend(status: int) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    got: list[tuple[str, dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, dict(self.headers), body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_events_are_posted_with_the_key_of_the_environment() -> None:
    with backend(201) as (url, got):
        open_sender(url, {"OPENLINEAGE_API_KEY": "hush"})(b"{}")
        open_sender(f"{url}/elsewhere?x=1", {})(b"{}")
    (path, headers, body), (other, without, _) = got
    assert (path, headers["Authorization"], headers["Content-Type"], body) == (
        "/api/v1/lineage",
        "Bearer hush",
        "application/json",
        b"{}",
    )
    assert (other, "Authorization" in without) == ("/elsewhere?x=1", False)


def test_a_backend_that_refuses_is_an_error_of_its_own() -> None:
    with backend(500) as (url, _), pytest.raises(OSError, match="it answers 500"):
        open_sender(url, {})(b"{}")


@pytest.mark.parametrize("place", ["ftp://host", "http://", "http://host:99999", "http://a:b@host", "no/such/file"])
def test_places_that_cannot_be_are_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadPipeline, match="--lineage"):
        open_sender(place, {})
