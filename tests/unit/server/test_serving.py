"""A whole broker process around the fake node: ready line, signals, second owner, refused starts."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

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
settings = load_settings(flags=dict(data_dir={data!r}, listen={listen!r}, drain_ms="300", log_level="info"))
try:
    run(settings, ready_file={ready!r}, make_node=make_node, hangup=Hangup, use_uvloop={uvloop})
except StartError as error:
    sys.exit(f"refused: {{error}}")
print("clean" if node.closed_clean else "unclean")
"""


class Broker:
    def __init__(self, tmp_path: Path, *, uvloop: bool = True, listen: str = "127.0.0.1:0", options: str = "") -> None:
        self.ready_file = tmp_path / "ready"
        script = SCRIPT.format(
            here=str(HERE), data=str(tmp_path / "data"), ready=str(self.ready_file), uvloop=uvloop, listen=listen
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

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


def dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=10)


@pytest.mark.parametrize("uvloop", [True, False])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_from_the_ready_line_to_a_clean_end(tmp_path: Path, uvloop: bool, number: signal.Signals) -> None:
    broker = Broker(tmp_path, uvloop=uvloop)
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


def test_a_client_that_waits_for_ever_does_not_stop_the_stop(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.line()
    address = broker.line().split()[4]
    with dial(address) as client:
        client.sendall(frame_of(b"W"))
        time.sleep(0.1)
        broker.process.terminate()
        code, out, err = broker.end()
    assert (code, out) == (0, "clean\n")
    assert "1 clients were dropped" in err


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.line()
    address = broker.line().split()[4]
    with dial(address) as client:
        client.sendall(frame_of(b"W"))
        time.sleep(0.1)
        broker.process.terminate()
        time.sleep(0.05)
        broker.process.terminate()
        code, out, _ = broker.end()
    assert (code, out) == (1, "")


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    first.line()
    first.line()
    second = Broker(tmp_path)
    code, _, err = second.end()
    assert code == 1
    assert err == (
        f"refused: the data directory {tmp_path / 'data'} is in use by process {first.process.pid}:"
        " give each broker its own\n"
    )
    first.process.kill()
    first.end()
    third = Broker(tmp_path)
    third.line()
    assert "ready on" in third.line(), "a killed broker leaves no lock behind"
    third.process.terminate()
    third.end()


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = Broker(tmp_path, listen=f"127.0.0.1:{port}").end()
    assert code == 1
    assert f"refused: cannot listen on 127.0.0.1:{port}: Address already in use" in err


def test_ipv6(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    broker = Broker(tmp_path, listen="[::1]:0")
    broker.line()
    address = broker.line().split()[4]
    assert address.startswith("[::1]:")
    with dial(address) as client:
        client.sendall(frame_of(b"Esix"))
        assert client.recv(100) == frame_of(b"Esix")
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_assertions_stay_on(tmp_path: Path) -> None:
    code, _, err = Broker(tmp_path, options="-O").end()
    assert code == 1
    assert "without -O" in err


def test_the_command_line(tmp_path: Path) -> None:
    def skidway(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)

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
