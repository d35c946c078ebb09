"""What the pipelines of this process do, for Prometheus: `--metrics HOST:PORT`, or `serve` in a session of one's own.

`running.run` enters each pipeline into `watched`, under its name. The listener answers one request after the other, and
waits for none longer than a moment: it is for one or two scrapers, on an address that only they reach.
"""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from socket import AF_INET6
from socketserver import TCPServer

from skidway.broker.metrics import Kind, Metric, Sample, Take
from skidway.gateways.http.exposition import CONTENT_TYPE, Page
from skidway.server.addresses import parse_address
from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.status import RUNNING, Status, now_ms, watched
from skidway.spark.pipelines.values.rejects import reasons_of
from skidway.steps import at_once

REQUEST_TIMEOUT_S = 2.0
WHO = ("pipeline", "kind")


def _counter(name: str, *labels: str) -> Metric:
    return Metric(f"skidway_pipeline_{name}_total", Kind.COUNTER, (*WHO, *labels))


def _gauge(name: str, *labels: str) -> Metric:
    return Metric(f"skidway_pipeline_{name}", Kind.GAUGE, (*WHO, *labels))


UP = _gauge("running")
LAG, LAG_SECONDS = _gauge("lag_records"), _gauge("lag_seconds")
BATCHES, BATCH_SECONDS, LAST_BATCH = _counter("batches"), _counter("batch_seconds"), _gauge("last_batch_seconds")
RECORDS, ROWS, FILES, BYTES = _counter("records"), _counter("rows"), _counter("files"), _counter("bytes")
REJECTED, LATE = _counter("rejected", "reason"), _counter("late_rows")
LAST_COMMIT, STARTED = _gauge("last_commit_timestamp_seconds"), _gauge("start_timestamp_seconds")
COUNTED = _counter("counted", "what")


def samples(statuses: Mapping[str, Status], at_ms: int, take: Take) -> None:
    for name, one in statuses.items():
        who = name, one.pipeline
        waiting_ms = 0 if one.figures.waiting_since_ms is None else max(0, at_ms - one.figures.waiting_since_ms)
        numbers = {
            UP: int(one.state == RUNNING),
            STARTED: one.started_ms / 1000,
            BATCHES: one.batches,
            BATCH_SECONDS: one.figures.batches_ms / 1000,
            RECORDS: one.records,
            ROWS: one.figures.rows,
            FILES: one.figures.files,
            BYTES: one.figures.bytes,
            LATE: one.figures.late,
        }
        if one.batches:
            numbers |= {LAST_BATCH: one.last_batch_ms / 1000, LAST_COMMIT: one.figures.last_commit_ms / 1000}
        if one.lag is not None:
            numbers |= {LAG: one.lag, LAG_SECONDS: waiting_ms / 1000}
        for metric, number in numbers.items():
            take(Sample(metric, who, number))
        counts = dict(one.counts)  # The pipeline goes on meanwhile.
        reasons, others = reasons_of(counts)
        for reason, count in reasons.items():
            take(Sample(REJECTED, (*who, reason), count))
        for what, count in others.items():
            take(Sample(COUNTED, (*who, what), count))


def page(statuses: Mapping[str, Status], at_ms: int) -> bytes:
    lines = Page()
    samples(statuses, at_ms, lines.take)
    return at_once(lines.text())


class Answer(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.0"
    server_version = "skidway"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404, "only /metrics is here")
            return
        content = page(watched.all(), now_ms())
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE.decode())
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """A scrape is no news."""


class Listener:
    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="skidway-pipeline-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(TCPServer):
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Of a scraper that went away or said nothing: its own business."""


class _ServerSix(_Server):
    address_family = AF_INET6


def serve(address: str) -> Listener:
    """BadPipeline if there can be no listener at this HOST:PORT."""
    try:
        where = parse_address(address)
        kind = _ServerSix if ":" in where.host else _Server
        return Listener(kind((where.host, where.port), Answer))
    except ValueError as error:
        raise BadPipeline(f"--metrics: {error}") from None
    except OSError as error:
        raise BadPipeline(f"--metrics: cannot listen at {address}: {error.strerror or error}; choose another") from None
