"""A schema registry that is asked over HTTP, by the API that Confluent's has and others serve too.

Asked: `/schemas/ids/ID`, `/schemas/guids/GUID` and `/subjects/SUBJECT/versions/VERSION`. An answer is bounded in size
and in time; what may pass (no connection, 429, 5xx) is tried again. Redirects are not followed: they would take the
credentials elsewhere. Credentials are in no error and no text about a registry.
"""

import base64
import http.client
import ssl
import time
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import msgspec

from skidway.spark.registry.schemas import SCHEMA_BYTES_MAX, Answer, RegistryFailed, UnknownSchema, parse_answer

TIMEOUT_S = 10.0
ANSWER_TIME_MAX_S = 30.0
# A schema is JSON in JSON: nearly every character of it may be escaped.
ANSWER_BYTES_MAX = 3 * SCHEMA_BYTES_MAX
ATTEMPTS = 6
FIRST_PAUSE_S = 0.25
NOT_THERE = (40401, 40402, 40403)
"""No such subject, version, schema. Any other 404 is an address at which there is no registry."""
CHUNK_BYTES = 64 * 1024


class _Refusal(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class _Again(Exception):
    """Failed in a way that may pass."""


@dataclass(slots=True, frozen=True)
class HttpRegistry:
    url: str
    authorization: str = field(default="", repr=False)

    def by_id(self, schema_id: int) -> Answer:
        return self._schema(f"/schemas/ids/{schema_id}")

    def by_guid(self, guid: str) -> Answer:
        return self._schema(f"/schemas/guids/{quote(guid, safe='')}")

    def by_version(self, subject: str, version: str) -> Answer:
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")

    def _schema(self, path: str) -> Answer:
        answer = parse_answer(self._get(path))
        if len(answer.schema) > SCHEMA_BYTES_MAX:
            raise RegistryFailed(f"{self.url}{path} has a schema of more than {SCHEMA_BYTES_MAX} bytes")
        return answer

    def _get(self, path: str) -> bytes:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._get_once(path)
            except (_Again, OSError, http.client.HTTPException) as error:
                failure = str(error) or type(error).__name__
            if attempt < ATTEMPTS:
                time.sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
        raise RegistryFailed(f"the schema registry at {self.url} cannot be asked: {failure}")

    def _get_once(self, path: str) -> bytes:
        parts = urlsplit(self.url)
        connection = self._connect(parts.scheme, parts.hostname or "", parts.port)
        try:
            headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
            if self.authorization:
                headers["Authorization"] = self.authorization
            connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
            response = connection.getresponse()
            return self._judged(path, response.status, _bounded(response, self.url))
        finally:
            connection.close()

    def _connect(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def _judged(self, path: str, status: int, body: bytes) -> bytes:
        if status == 200:
            return body
        if status == 429 or status >= 500:
            raise _Again(f"it answers {status}")
        if status == 404 and _error_code(body) in NOT_THERE:
            raise UnknownSchema(path)
        if status in (401, 403):
            raise RegistryFailed(
                f"the schema registry at {self.url} refuses the credentials ({status}): set SKIDWAY_REGISTRY_USER and"
                " SKIDWAY_REGISTRY_PASSWORD, or SKIDWAY_REGISTRY_TOKEN"
            )
        raise RegistryFailed(f"{self.url}{path} answers {status}, as no schema registry does; is the address right?")


def _bounded(response: http.client.HTTPResponse, url: str) -> bytes:
    began_s = time.monotonic()
    parts, size = [], 0
    while chunk := response.read1(CHUNK_BYTES):
        size += len(chunk)
        if size > ANSWER_BYTES_MAX:
            raise RegistryFailed(f"the schema registry at {url} answers more than {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() - began_s > ANSWER_TIME_MAX_S:
            raise _Again(f"its answer takes more than {ANSWER_TIME_MAX_S:.0f} s")
        parts.append(chunk)
    return b"".join(parts)


def _error_code(body: bytes) -> int:
    try:
        return msgspec.json.decode(body, type=_Refusal).error_code
    except (msgspec.DecodeError, RecursionError):
        return 0


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
