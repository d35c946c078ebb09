"""A small schema registry over HTTP, as confluent-kafka's serializers and our reader ask one. In memory, on loopback.

It takes schemas as they are and gives ids in order. `fail` has it answer so many requests with a status first, and
`asked` is what it was asked for.
"""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(slots=True)
class SchemaRegistry:
    url: str = ""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    """By id, from 1."""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """Ids, by version from 1."""
    asked: list[str] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)
    wanted: str | None = None
    """The header `Authorization` that it takes."""
    fail: list[int] = field(default_factory=list)
    answer: bytes | None = None
    """Instead of every other answer."""

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Its id: that of the same schema elsewhere, if there is one."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        one = {"schema": text, "schemaType": kind, "references": references or []}
        if one not in self.schemas:
            self.schemas.append(one)
        number = self.schemas.index(one) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def guid(self, number: int) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.url}/{number}"))

    def described(self, number: int) -> dict[str, Any]:
        return {**self.schemas[number - 1], "id": number, "guid": self.guid(number)}

    def get(self, steps: list[str]) -> tuple[int, Any]:
        if steps[:2] == ["schemas", "ids"]:
            number = int(steps[2])
            found = 0 < number <= len(self.schemas)
            return (200, self.described(number)) if found else (404, {"error_code": 40403, "message": "not found"})
        if steps[:2] == ["schemas", "guids"]:
            for number in range(1, len(self.schemas) + 1):
                if self.guid(number) == steps[2]:
                    return 200, self.described(number)
            return 404, {"error_code": 40403, "message": "not found"}
        if steps[0] == "subjects" and len(steps) == 4:
            versions = self.subjects.get(steps[1], [])
            version = len(versions) if steps[3] in ("latest", "-1") else int(steps[3])
            if not 0 < version <= len(versions):
                return 404, {"error_code": 40401, "message": "not found"}
            return 200, {**self.described(versions[version - 1]), "subject": steps[1], "version": version}
        return 404, {"error": "no such path"}

    def post(self, steps: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        """Registers; a look-up of a schema is answered as if it did."""
        number = self.add(steps[1], body["schema"], body.get("schemaType") or "AVRO", body.get("references") or [])
        version = self.subjects[steps[1]].index(number) + 1
        return 200, {**self.described(number), "subject": steps[1], "version": version}


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(lambda steps: registry.get(steps))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._respond(lambda steps: registry.post(steps, body))

        def _respond(self, answer: Any) -> None:
            path = urlsplit(self.path).path
            registry.asked.append(path)
            registry.authorizations.add(self.headers.get("Authorization"))
            if registry.fail:
                status, found = registry.fail.pop(0), {"error_code": 50001, "message": "later"}
            elif registry.wanted is not None and self.headers.get("Authorization") != registry.wanted:
                status, found = 401, {"error_code": 401, "message": "who are you?"}
            else:
                status, found = answer([unquote(step) for step in path.strip("/").split("/")])
            body = json.dumps(found).encode() if registry.answer is None else registry.answer
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: tests look at `asked`."""

    return Handler


@contextmanager
def serving() -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
