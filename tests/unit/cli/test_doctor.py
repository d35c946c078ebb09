"""`skidway doctor` beside a real broker, and with planted trouble: each is found, and the doctor says what to do."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.cli import broker_checks
from skidway.cli.commands import doctor
from skidway.cli.machine_checks import filesystem_of
from skidway.testing import Broker


@pytest.fixture(autouse=True)
def _unset_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SKIDWAY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port where nobody listens, and that nobody else takes meanwhile."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        deaf.bind(("127.0.0.1", 0))
        yield deaf.getsockname()[1]


@pytest.fixture
def web_server() -> Iterator[str]:
    """A server that answers, but not as a broker."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    client.recv(1024)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listening.getsockname()
        yield f"{host}:{port}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def examined(*words: str) -> dict[str, list[dict[str, Any]]]:
    """The findings of each check; the exit code is the worst of them."""
    ended = CliRunner().invoke(doctor.app, [*words, "--json"])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    document = json.loads(ended.stdout)
    states = ["ok", "warn", "fail"]
    assert ended.exit_code == document["exit_code"] == max(states.index(each["state"]) for each in document["checks"])
    assert document["status"] == states[ended.exit_code]
    found: dict[str, list[dict[str, Any]]] = {}
    for each in document["checks"]:
        assert (each["todo"] is None) == (each["state"] == "ok"), each
        found.setdefault(each["check"], []).append(each)
    return found


def the_one(found: dict[str, list[dict[str, Any]]], check: str) -> tuple[str, str]:
    (finding,) = found[check]
    return finding["state"], f"{finding['text']} {finding['todo'] or ''}"


def test_a_broker_that_runs_here(broker: Broker) -> None:
    found = examined("--listen", broker.bootstrap, "--data-dir", str(broker.data_dir))
    assert [each for findings in found.values() for each in findings if each["state"] == "fail"] == []
    assert the_one(found, "port")[1].strip() == f"{broker.bootstrap} is in use by a Kafka broker that answers"
    assert the_one(found, "broker")[0] == "ok"
    assert the_one(found, "advertised")[0] == "ok"
    assert f"advertises {broker.bootstrap}" in the_one(found, "advertised")[1]
    assert the_one(found, "clock skew")[0] == "ok"
    assert the_one(found, "cluster")[0] == "ok"
    assert the_one(found, "cluster")[1].startswith("healthy: 1 broker, ")
    for check in ("python", "skidway", "dependencies", "spark", "settings", "descriptors", "disk space", "fsync"):
        assert check in found


def test_before_the_first_start(free_port: int, tmp_path: Path) -> None:
    found = examined("--listen", f"127.0.0.1:{free_port}", "--data-dir", str(tmp_path / "a" / "b"))
    assert "skidway serve starts one" in the_one(found, "broker")[1]
    assert the_one(found, "data directory") == ("ok", f"{tmp_path}/a/b does not exist yet; skidway serve creates it ")
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    found = examined("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path))
    assert the_one(found, "port") == ("ok", f"127.0.0.1:{port} is free ")


def test_a_port_that_a_web_server_has(web_server: str, tmp_path: Path) -> None:
    found = examined("--listen", web_server, "--data-dir", str(tmp_path))
    state, text = the_one(found, "port")
    assert state == "fail"
    assert re.search(rf"{web_server} is in use by process \d+ \(.+\), which does not speak Kafka's protocol", text)
    assert "another --listen" in text


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    found = examined("--listen", "192.0.2.1:9092", "--data-dir", str(tmp_path), "--timeout", "0.5")
    state, text = the_one(found, "port")
    assert state == "fail"
    assert "cannot listen on 192.0.2.1:9092" in text


def test_a_bootstrap_address_where_no_broker_is(free_port: int, web_server: str) -> None:
    found = examined("--listen", "127.0.0.1:0", "-b", f"127.0.0.1:{free_port},{web_server}", "--timeout", "2")
    refused, foreign = found["broker"]
    assert (refused["state"], foreign["state"]) == ("fail", "fail")
    assert "connection refused" in refused["text"]
    assert "skidway serve" in refused["todo"]
    assert "another server listens there" in foreign["todo"]


def test_an_advertised_address_that_clients_cannot_reach(free_port: int) -> None:
    with Broker(arguments=("--advertise", f"127.0.0.1:{free_port}")) as broker:
        found = examined("-b", broker.bootstrap, "--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir))
    assert the_one(found, "broker")[0] == "ok"
    state, text = the_one(found, "advertised")
    assert state == "fail"
    assert f"node 1 advertises 127.0.0.1:{free_port}, where clients fail: cannot reach" in text
    assert "--advertise HOST:PORT" in text


def test_an_advertised_address_of_another_cluster(broker: Broker) -> None:
    with Broker(arguments=("--advertise", broker.bootstrap)) as lost:
        found = examined("-b", lost.bootstrap, "--listen", "127.0.0.1:0", "--data-dir", str(lost.data_dir))
    state, text = the_one(found, "advertised")
    assert state == "fail"
    assert "a broker of another cluster answers" in text


def test_an_advertised_name_that_nobody_knows(tmp_path: Path) -> None:
    words = ("--listen", "127.0.0.1:0", "--advertise", "nowhere.invalid:9092", "--data-dir", str(tmp_path))
    state, text = the_one(examined(*words), "advertised")
    assert state == "warn"
    assert "nowhere.invalid:9092 does not resolve on this machine" in text


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    # Permissions do not stop root, but nobody can create files in /proc.
    wanted = closed / "data" if os.geteuid() else Path("/proc/data")
    state, text = the_one(examined("--listen", "127.0.0.1:0", "--data-dir", str(wanted)), "data directory")
    assert state == "fail"
    assert f"this user cannot create {wanted} in {wanted.parent}" in text
    assert "another --data-dir" in text


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    state, text = the_one(examined("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")), "data directory")
    assert state == "fail"
    assert "is a file" in text


def test_a_data_directory_that_everybody_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    state, text = the_one(examined("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)), "data directory")
    assert state == "warn"
    assert "chmod o-w" in text


@pytest.mark.parametrize(("files", "state"), [(128, "fail"), (1024, "warn")])
def test_few_descriptors(files: int, state: str, tmp_path: Path) -> None:
    program = "import sys; from skidway.cli.main import main; sys.exit(main())"
    words = ["doctor", "--json", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", sys.executable, "-c", program, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (finding,) = [each for each in json.loads(ended.stdout)["checks"] if each["check"] == "descriptors"]
    assert finding["state"] == state
    assert finding["text"].startswith(f"a broker may open {files:,} files, enough for {files // 2} connections")
    assert "LimitNOFILE" in finding["todo"]


def test_settings_that_stop_a_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKIDWAY_FLUSH", "never")
    found = examined("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    state, text = the_one(found, "settings")
    assert state == "fail"
    assert "flush in environment variable SKIDWAY_FLUSH: expected one of 'sync', 'os'" in text


def test_a_clock_that_is_an_hour_ahead(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_checks, "time", SimpleNamespace(time=lambda: time.time() + 3_600))
    state, text = the_one(examined("-b", broker.bootstrap, "--listen", "127.0.0.1:0"), "clock skew")
    assert state == "warn"
    assert "the clock of node 1 (the controller) is 3,600," in text or "is 3,599," in text
    assert "ms behind the clock of this machine" in text
    assert "NTP" in text


def test_what_a_person_sees(web_server: str, tmp_path: Path) -> None:
    ended = CliRunner().invoke(doctor.app, ["--listen", web_server, "--data-dir", str(tmp_path)])
    assert ended.exit_code == 2
    lines = ended.stdout.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("fail  port ")]
    assert lines[place + 1].strip().startswith("to do: ")
    assert "ok    python " in ended.stdout


def test_the_filesystem_of_a_path(tmp_path: Path) -> None:
    kind = filesystem_of(tmp_path)
    shown = subprocess.run(["df", "--output=fstype", str(tmp_path)], capture_output=True, text=True, check=True)
    assert kind == shown.stdout.split()[-1]
    assert filesystem_of(Path("/proc/self")) == "proc"
