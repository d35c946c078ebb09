"""A local S3 server (moto) in a process of its own, and a way to it on which things go wrong."""

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from skidway.testing.free_ports import free_ports
from waiting import eventually

BUCKET = "lake"
PASS, LOSE_REPLY, LOSE_REQUEST = "pass", "lose the reply", "lose the request"
Judge = Callable[[str, str, int], "str | int"]
"""Gets method, path and the number of such a request; says what becomes of it: one of these, or a status code."""
SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
server.start()
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """Its address, with an empty bucket."""
    port = free_ports()
    with subprocess.Popen([sys.executable, "-c", SERVE, str(port)], stdin=subprocess.PIPE) as process:
        try:
            eventually(lambda: _answers(port), 120)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("PUT", f"/{BUCKET}")
            assert connection.getresponse().status == 200
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def use(patched: pytest.MonkeyPatch, address: str) -> None:
    """Credentials and address as a user sets them."""
    settings = {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": "hush-hush", "REGION": "us-east-1"}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patched.delenv(name)
    for name, value in {**settings, "ENDPOINT_URL": address}.items():
        patched.setenv(f"AWS_{name}", value)


@contextmanager
def unsafe_way(address: str, judge: Judge) -> Iterator[str]:
    """The address of a proxy before the server."""
    target = address.removeprefix("http://")
    counts: dict[tuple[str, str], int] = {}
    guard = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def carry(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with guard:
                key = (self.command, self.path)
                counts[key] = counts.get(key, 0) + 1
                verdict = judge(self.command, self.path, counts[key])
            if verdict == LOSE_REQUEST:
                self.close_connection = True
                return
            if isinstance(verdict, int):
                self._answer(verdict, [], b"<Error><Code>SlowDown</Code></Error>")
                return
            connection = http.client.HTTPConnection(target, timeout=120)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, body=body, headers=headers)
            reply = connection.getresponse()
            content = reply.read()
            connection.close()
            if verdict == LOSE_REPLY:
                self.close_connection = True
                return
            self._answer(reply.status, reply.getheaders(), content)

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = next((value for name, value in headers if name.lower() == "content-length"), None)
            self.send_header("content-length", length if self.command == "HEAD" and length else str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = carry  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
