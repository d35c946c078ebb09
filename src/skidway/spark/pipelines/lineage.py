"""What a run reads and writes, as OpenLineage events: `--lineage` posts them to a URL, or adds them to a file as lines.

START when a run begins, RUNNING once a minute while it has batches, and one at its end: COMPLETE when it is done, ABORT
when it was stopped, FAIL with the error. All of a run have its id. A backend that does not answer is warned of once and
stops no pipeline. `OPENLINEAGE_API_KEY` is sent as a bearer token, and `OPENLINEAGE_NAMESPACE` is that of the job, as
other tools have it. No Spark in it.
"""

import http.client
import json
import os
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from skidway.spark.pipelines.options import BadPipeline, labelled
from skidway.spark.pipelines.status import DONE, FAILED, RUNNING, STOPPED, Status

PRODUCER = "urn:skidway"
SPECIFICATION = "https://openlineage.io/spec"
EVENT_SCHEMA = f"{SPECIFICATION}/2-0-2/OpenLineage.json#/$defs/RunEvent"
ERROR_FACET = f"{SPECIFICATION}/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
JOB_FACET = f"{SPECIFICATION}/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet"
OUTPUT_FACET = (
    f"{SPECIFICATION}/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
)
ENDPOINT = "/api/v1/lineage"
KEY_VARIABLE, NAMESPACE_VARIABLE = "OPENLINEAGE_API_KEY", "OPENLINEAGE_NAMESPACE"
NAMESPACE = "skidway"
INTERVAL_S = 60.0
TIMEOUT_S = 5.0
ENDS = {DONE: "COMPLETE", STOPPED: "ABORT", FAILED: "FAIL"}

Send = Callable[[bytes], None]
Dataset = dict[str, Any]


def open_sender(place: str, environment: Mapping[str, str] = os.environ) -> Send:
    """BadPipeline if nothing can be sent there. A URL without a path gets that of OpenLineage."""
    if "://" not in place:
        return _appending(Path(place))
    try:
        parts = urlsplit(place)
        port = parts.port
    except ValueError as error:
        raise BadPipeline(f"--lineage: {place!r} is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise BadPipeline(f"--lineage: credentials do not go into the URL, where others see them: set {KEY_VARIABLE}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadPipeline(f"--lineage: {place!r} is neither http://HOST:PORT nor a file")
    key = environment.get(KEY_VARIABLE, "")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    path = (parts.path if parts.path.strip("/") else ENDPOINT) + (f"?{parts.query}" if parts.query else "")
    host = parts.hostname

    def post(event: bytes) -> None:
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            secure = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=secure)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", path, event, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise OSError(f"it answers {status}")

    return post


def _appending(path: Path) -> Send:
    try:
        path.open("ab").close()
    except OSError as error:
        raise BadPipeline(f"--lineage: the file {str(path)!r} cannot be written: {error.strerror}") from None

    def append(event: bytes) -> None:
        with path.open("ab") as file:
            file.write(event + b"\n")

    return append


@dataclass(slots=True)
class Lineage:
    """Of one run: `see` its status whenever that has changed."""

    send: Send
    options: Any
    warn: Callable[[str], None]
    namespace: str = field(default_factory=lambda: os.environ.get(NAMESPACE_VARIABLE) or NAMESPACE)
    clock: Callable[[], float] = time.monotonic
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    _sent_s: float | None = None
    _batches: int = 0
    _ended: bool = False
    _warned: bool = False

    def see(self, status: Status) -> None:
        if self._ended:
            return
        if self._sent_s is None:
            self._tell("START", status)
        if status.state != RUNNING:
            self._ended = True
            self._tell(ENDS.get(status.state, "OTHER"), status)
        elif status.batches > self._batches and self._sent_s is not None and self.clock() - self._sent_s >= INTERVAL_S:
            self._tell("RUNNING", status)

    def _tell(self, kind: str, status: Status) -> None:
        self._sent_s, self._batches = self.clock(), status.batches
        try:
            self.send(json.dumps(self.event(kind, status, datetime.now(UTC))).encode())
        except (OSError, http.client.HTTPException) as error:
            if not self._warned:
                self._warned = True
                self.warn(f"lineage: events cannot be sent, and the pipeline goes on without: {error}")

    def event(self, kind: str, status: Status, at: datetime) -> dict[str, Any]:
        facets = {}
        if status.error and kind == "FAIL":
            facets["errorMessage"] = _facet(ERROR_FACET, message=status.error, programmingLanguage="PYTHON")
        job = _facet(JOB_FACET, processingType="STREAMING", integration="SPARK", jobType="JOB")
        return {
            "eventType": kind,
            "eventTime": at.isoformat(timespec="milliseconds"),
            "run": {"runId": self.run, "facets": facets},
            "job": {"namespace": self.namespace, "name": status.name or status.pipeline, "facets": {"jobType": job}},
            "inputs": [topic(self.options.bootstrap, name) for name in self.options.topic],
            "outputs": self._outputs(status),
            "producer": PRODUCER,
            "schemaURL": EVENT_SCHEMA,
        }

    def _outputs(self, status: Status) -> list[Dataset]:
        found = outputs_of(self.options)
        figures = status.figures
        if figures.files:  # The figures are those of the table that comes first.
            counted = _facet(OUTPUT_FACET, rowCount=figures.rows, size=figures.bytes, fileCount=figures.files)
            found[0]["outputFacets"] = {"outputStatistics": counted}
        return found


def _facet(schema: str, **told: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": schema, **told}


def outputs_of(options: Any) -> list[Dataset]:
    """By what all pipelines call where they write to."""
    found = [table(getattr(options, name)) for name in ("path", "to_table") if getattr(options, name, None)]
    if hasattr(options, "rejected_target") and not options.takes_all:
        found.append(table(options.rejected_target().path))
    names = [labelled(route, "route")[0] for route in getattr(options, "route", [])]
    if getattr(options, "to_topic", None):
        names.append(options.to_topic)
    return found + [topic(options.bootstrap, name) for name in dict.fromkeys(names)]


def topic(bootstrap: str, name: str) -> Dataset:
    """As OpenLineage names one of Kafka: by the first broker."""
    return {"namespace": f"kafka://{bootstrap.partition(',')[0].strip()}", "name": name}


def table(path: str) -> Dataset:
    """A folder, or what a URL of an object store names: the bucket, and the key in it."""
    scheme, sign, rest = path.partition("://")
    if not sign:
        return {"namespace": "file", "name": str(Path(path).absolute())}
    if scheme == "file":
        return {"namespace": "file", "name": rest if rest.startswith("/") else f"/{rest}"}
    bucket, _, key = rest.partition("/")
    return {"namespace": f"{'s3' if scheme == 's3a' else scheme}://{bucket}", "name": key.strip("/") or "/"}
