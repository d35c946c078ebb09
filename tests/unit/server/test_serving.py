"""A whole broker process around the fake node: ready line, signals, second owner, refused starts."""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_fake_node import frame_of

from skidway.broker.listeners import Address, only_listener
from skidway.server import advertised, port_in_use
from skidway.server.config import load_settings
from skidway.server.main import StartError, run

HERE = Path(__file__).parent
SCRIPT = """
import socket
import sys
sys.path.insert(0, {here!r})
from server_fake_node import FakeNode, Hangup
from skidway.server.config import load_settings
from skidway.server.main import StartError, run

node = FakeNode()
other = socket.socket()
def make_node(settings, listeners, disk, clock, random):
    print("advertised", *(spec.advertised for spec in listeners), flush=True)
    if {rival}:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", listeners.inter_broker.bind.port))
        other.listen()
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
        environment: dict[str, str] | None = None,
        rival: bool = False,
    ) -> None:
        """`rival`: after it has bound its port, somebody else listens there."""
        self.ready_file = tmp_path / "ready"
        script = SCRIPT.format(
            here=str(HERE),
            data=str(tmp_path / "data"),
            ready=str(self.ready_file),
            uvloop=uvloop,
            listen=listen,
            drain_ms=str(drain_ms),
            rival=rival,
        )
        self.process = subprocess.Popen(
            [sys.executable, *options.split(), "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
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
    promised = broker.line().split()[1]
    ready = broker.line()
    address = ready.split()[4]
    assert ready == f"skidway 0.1.0 ready on {address} (node 1, data in {tmp_path / 'data'})\n"
    assert address == promised
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
    assert "dropped 1 clients" in err


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
    said = f"refused: cannot listen on 127.0.0.1:{port}: the port is in use by process {os.getpid()} ("
    assert said in err
    other = re.search(r"choose another port: --listen 127\.0\.0\.1:(\d+); skidway doctor --listen ", err)
    assert other is not None
    assert int(other[1]) not in (port, 0)


def test_two_listeners_of_one_address_are_refused(start: Start) -> None:
    """Written in two ways, so that only the sockets tell."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, out, err = start(listen=f"127.0.0.1:{port},B=127.1:{port}").end()
    assert (code, out) == (1, "")
    assert f"refused: PLAINTEXT and B would share the address 127.0.0.1:{port}: every listener needs its own" in err


@pytest.mark.parametrize("uvloop", [True, False])
def test_a_port_that_another_took_during_the_start_is_told(start: Start, uvloop: bool) -> None:
    """Two that begin at once can both bind it, and only one of them can listen."""
    broker = start(uvloop=uvloop, rival=True)
    port = broker.line().rpartition(":")[2].strip()
    code, out, err = broker.end()
    assert (code, out) == (1, "")
    assert f"refused: cannot listen on 127.0.0.1:{port}: the port is in use by process {broker.process.pid} (" in err


def test_who_has_a_port_is_guessed_where_nobody_may_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of other users, and systems without /proc."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"by process {os.getpid()} (" in port_in_use.holder(port)
        monkeypatch.setattr(port_in_use, "_descriptors", lambda process: iter(()))
        assert port_in_use.holder(port) == port_in_use.LIKELY


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "this user may not use that port; choose another port: --listen 127.0.0.1:9092"),
        (errno.EADDRNOTAVAIL, "this machine does not have that address; --listen 0.0.0.0:80 --advertise HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_had(number: int, said: str) -> None:
    assert said in port_in_use.explain(only_listener("127.0.0.1", 80).inter_broker, OSError(number, "no"))


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


def test_the_ready_line_shows_what_clients_will_connect_to(start: Start, tmp_path: Path) -> None:
    broker = start(listen="0.0.0.0:0")
    promised = broker.line().split()[1]
    port = promised.rpartition(":")[2]
    ready = broker.line()
    told = f"ready on 0.0.0.0:{port}, advertised to clients as {socket.gethostname()}:{port}"
    assert ready == f"skidway 0.1.0 {told} (node 1, data in {tmp_path / 'data'})\n"
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_the_ready_line_and_the_ready_file_show_all_listeners(start: Start, tmp_path: Path) -> None:
    broker = start(listen="127.0.0.1:0,OUTSIDE=127.0.0.1:0")
    _, first, second = broker.line().split()
    assert broker.line() == f"skidway 0.1.0 ready on {first}; OUTSIDE={second} (node 1, data in {tmp_path / 'data'})\n"
    assert broker.ready_file.read_text() == f"{first}\nOUTSIDE={second}\n"
    for address in (first, second):
        with dial(address) as client:
            client.sendall(frame_of(b"Ehere"))
            assert client.recv(100) == frame_of(b"Ehere")
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_one_port_of_several_that_is_taken_stops_the_start(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = start(listen=f"127.0.0.1:0,OUTSIDE=127.0.0.1:{port}").end()
    assert code != 0
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use" in err
    assert "choose another port: --listen OUTSIDE=127.0.0.1:" in err


def test_an_advertised_address_that_nobody_reaches_is_told() -> None:
    nowhere = advertised.problem_of(Address("no-such-host.invalid", 9092), chosen=True)
    assert nowhere is not None
    assert "no-such-host.invalid:9092 does not resolve" in nowhere
    here_alone = advertised.problem_of(Address("localhost", 9092), chosen=False)
    assert here_alone is not None
    assert "only this machine reaches" in here_alone
    assert advertised.problem_of(Address("localhost", 9092), chosen=True) is None, "an operator's own choice"
    assert advertised.problem_of(Address("192.0.2.1", 9092), chosen=False) is None


def test_variables_of_a_kubernetes_service_are_ignored_with_one_line(start: Start) -> None:
    links = {"SKIDWAY_PORT": "tcp://10.0.0.1:9092", "SKIDWAY_SERVICE_HOST": "10.0.0.1"}
    broker = start(environment=links)
    broker.line()
    assert "ready on" in broker.line()
    broker.process.terminate()
    code, _, err = broker.end()
    assert code == 0
    assert err.count("ignored variables that describe a service (2, such as SKIDWAY_PORT): they are not settings") == 1


def test_a_directory_that_must_have_data(tmp_path: Path) -> None:
    """A restart with a mistyped directory, or one that is not mounted, must not start as a new node."""
    settings = load_settings(flags={"data_dir": str(tmp_path / "mistyped"), "require_data": "true"})
    with pytest.raises(StartError, match="mistyped has no data of a node: is it mistyped or not mounted"):
        run(settings)
    assert not (tmp_path / "mistyped").exists()
    (tmp_path / "mistyped").mkdir()
    (tmp_path / "mistyped" / "lost+found").mkdir()
    with pytest.raises(StartError, match="require_data is set"):
        run(settings)


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
    assert (wrong.returncode, wrong.stderr) == (2, "error: skidway has no command serv; did you mean skidway serve?\n")
    mistake = skidway("serve", "--data-dir", str(tmp_path), "--set", "limits.conections_max=1")
    assert mistake.returncode == 2
    assert mistake.stderr == (
        "error: unknown setting limits.conections_max in flag --set limits.conections_max;"
        " did you mean limits.connections_max?\n"
    )
