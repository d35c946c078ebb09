"""A whole broker process around the fake node: ready line, signals, second owner, refused starts."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_fake_node import frame_of

HERE = Path(__file__).parent
SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from server_fake_node import FakeNode, Hangup
from skidway.server.config import load_settings
from skidway.server.main import StartError, run

node = FakeNode()
def make_node(settings, advertised, disk, clock, random):
    print("advertised", advertised, flush=True)
    return node
settings = load_settings(flags=dict(data_dir={data!r}, listen={listen!r}, drain_ms={drain_ms!r}, log_level="info"))
try:
    run(settings, ready_file={ready!r}, make_node=make_node, hangup=Hangup, use_uvloop={uvloop})
except StartError as error:
    sys.exit(f"refused: {{error}}")
print("clean" if node.closed_clean else "unclean")
"""


class Broker:
    def __init__(
        self,
        tmp_path: Path,
        *,
        uvloop: bool = True,
        listen: str = "127.0.0.1:0",
        options: str = "",
        drain_ms: int = 300,
    ) -> None:
        self.ready_file = tmp_path / "ready"
        script = SCRIPT.format(
            here=str(HERE),
            data=str(tmp_path / "data"),
            ready=str(self.ready_file),
            uvloop=uvloop,
            listen=listen,
            drain_ms=str(drain_ms),
        )
        self.process = subprocess.Popen(
            [sys.executable, *options.split(), "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def said(self, word: str) -> bool:
        """Reads on in its log until a line has the word."""
        assert self.process.stderr is not None
        return any(word in line for line in self.process.stderr)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


Start = Callable[..., Broker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Broker] = []

    def one_more(**options: Any) -> Broker:
        started.append(Broker(tmp_path, **options))
        return started[-1]

    yield one_more
    for broker in started:
        broker.process.kill()
        broker.process.communicate()


def dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=60)


def ask_and_wait(client: socket.socket) -> None:
    """A request that is never answered, and one behind it whose answer says that both have arrived."""
    client.sendall(frame_of(b"W") + frame_of(b"Ebehind"))
    assert client.recv(100) == frame_of(b"Ebehind")


@pytest.mark.parametrize("uvloop", [True, False])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_from_the_ready_line_to_a_clean_end(start: Start, tmp_path: Path, uvloop: bool, number: signal.Signals) -> None:
    broker = start(uvloop=uvloop)
    advertised = broker.line().split()[1]
    ready = broker.line()
    address = ready.split()[4]
    assert ready == f"skidway 0.1.0 ready on {address} (node 1, data in {tmp_path / 'data'})\n"
    assert address == advertised
    assert broker.ready_file.read_text() == f"{address}\n"
    with dial(address) as client:
        client.sendall(frame_of(b"Ehello"))
        assert client.recv(100) == frame_of(b"Ehello")
        broker.process.send_signal(number)
        assert client.recv(100) == b"", "an idle client is closed in good order"
    code, out, err = broker.end()
    assert (code, out) == (0, "clean\n")
    assert "stopping" in err
    assert "Traceback" not in err


def test_a_client_that_waits_for_ever_does_not_stop_the_stop(start: Start) -> None:
    broker = start()
    broker.line()
    address = broker.line().split()[4]
    with dial(address) as client:
        ask_and_wait(client)
        broker.process.terminate()
        code, out, err = broker.end()
    assert (code, out) == (0, "clean\n")
    assert "1 clients were dropped" in err


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    broker = start(drain_ms=250_000)
    broker.line()
    address = broker.line().split()[4]
    with dial(address) as client:
        ask_and_wait(client)
        broker.process.terminate()
        assert broker.said("stopping")
        broker.process.terminate()
        code, out, _ = broker.end()
    assert (code, out) == (1, "")


def test_a_second_broker_on_the_same_data_is_refused(start: Start, tmp_path: Path) -> None:
    first = start()
    first.line()
    first.line()
    second = start()
    code, _, err = second.end()
    assert code == 1
    assert err == (
        f"refused: the data directory {tmp_path / 'data'} is in use by process {first.process.pid}:"
        " give each broker its own\n"
    )
    first.process.kill()
    first.end()
    third = start()
    third.line()
    assert "ready on" in third.line(), "a killed broker leaves no lock behind"
    third.process.terminate()
    third.end()


def test_a_taken_port_is_told(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = start(listen=f"127.0.0.1:{port}").end()
    assert code == 1
    assert f"refused: cannot listen on 127.0.0.1:{port}: Address already in use" in err


def test_ipv6(start: Start) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    broker = start(listen="[::1]:0")
    broker.line()
    address = broker.line().split()[4]
    assert address.startswith("[::1]:")
    with dial(address) as client:
        client.sendall(frame_of(b"Esix"))
        assert client.recv(100) == frame_of(b"Esix")
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_assertions_stay_on(start: Start) -> None:
    code, _, err = start(options="-O").end()
    assert code == 1
    assert "without -O" in err


def test_the_command_line(tmp_path: Path) -> None:
    def skidway(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert "serve" in skidway("--help").stdout
    assert skidway("--version").stdout == "skidway 0.1.0\n"
    wrong = skidway("serv")
    assert (wrong.returncode, wrong.stderr) == (2, "skidway: unknown command serv; did you mean serve?\n")
    mistake = skidway("serve", "--data-dir", str(tmp_path), "--set", "limits.conections_max=1")
    assert mistake.returncode == 2
    assert mistake.stderr == (
        "skidway: unknown setting limits.conections_max in flag --set limits.conections_max;"
        " did you mean limits.connections_max?\n"
    )
