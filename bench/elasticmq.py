"""ElasticMQ as a peer of the SQS door: the jars from Maven Central, one process on loopback, gone afterwards.

It keeps messages in memory unless it is told otherwise; `is_durable` has it write them to an H2 database in a file.
"""

import http.client
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from bench.frames import BenchError
from bench.maven import fetch
from bench.subject import Unavailable
from skidway.testing.free_ports import free_ports

VERSION = os.environ.get("BENCH_ELASTICMQ_VERSION", "1.6.12")
READY_S = 60.0
SETTINGS = """
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
messages-storage {{ enabled = {durable}, driver-class = "org.h2.Driver", uri = "jdbc:h2:{folder}/elasticmq" }}
"""


class ElasticMQ:
    def __init__(self, *, is_durable: bool) -> None:
        self.name = "elasticmq, in a file" if is_durable else "elasticmq, in memory"
        self._is_durable = is_durable
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ("127.0.0.1", 0)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> "ElasticMQ":
        java = shutil.which("java")
        if java is None:
            raise Unavailable("ElasticMQ skipped: `java` is not installed")
        jars = fetch("ElasticMQ", "elasticmq", VERSION, f"org.elasticmq:elasticmq-server_2.13:{VERSION}")
        self._folder = tempfile.TemporaryDirectory(prefix="bench-elasticmq-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        port = free_ports()
        settings = folder / "elasticmq.conf"
        settings.write_text(SETTINGS.format(port=port, durable=str(self._is_durable).lower(), folder=folder))
        command = [java, "-Xmx1G", "-Xms1G", f"-Dconfig.file={settings}", "-cp", f"{jars}/*"]
        with (folder / "output.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "org.elasticmq.server.Main"], stdout=log, stderr=log, start_new_session=True
            )
        self.address = ("127.0.0.1", port)
        self._await_ready(folder)
        return self

    def _await_ready(self, folder: Path) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            connection = http.client.HTTPConnection(*self.address, timeout=5)
            try:
                connection.request("GET", "/?Action=ListQueues")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                said = (folder / "output.log").read_text(errors="replace")[-1_000:]
                self.__exit__()
                raise BenchError(f"ElasticMQ is not ready: {said}")
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._folder.cleanup()
