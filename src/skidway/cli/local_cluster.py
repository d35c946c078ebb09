"""A cluster on this machine: one process for each node, all below one directory.

The directory remembers how many nodes there are and where they listen (`cluster.json`), so that a later start needs
nothing but its name, and it is locked while the cluster runs. It remembers nothing of a start that could not be.
Nodes end with the process that started them. Another process may ask that one to restart a node (`ask_for_restart`), by
a file `node-N.restart` in the directory.
"""

import errno
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from skidway.server import flags
from skidway.server.config import ConfigError
from skidway.server.disk import DIRECTORY_MODE, FILE_MODE, LOCK_NAME
from skidway.server.listening import HTTP_OFF
from skidway.server.port_in_use import holder

HOST = "127.0.0.1"
DEFAULT_NODES = 3
DEFAULT_BASE_PORT = 9092
NODES_MAX = 50
PORT_MAX = 65_535
REPLICATION_MAX = 3
STOP_TIMEOUT_S = 20.0
LAST_WORDS_BYTES = 4_000
RESTART_LOOK_S = 0.1

State = Literal["starting", "ready", "stopping", "ended"]


class CannotStart(Exception):
    """For the person who asked for it."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `cluster.json` says."""

    nodes: int
    base_port: int
    cluster_id: str

    def address(self, node: int) -> str:
        return f"{HOST}:{self.base_port + node - 1}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node) for node in range(1, self.nodes + 1))

    @property
    def voters(self) -> str:
        return ",".join(f"{node}@{self.address(node)}" for node in range(1, self.nodes + 1))


@dataclass(slots=True)
class LocalNode:
    number: int
    address: str
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    stopping: bool = False
    restarting: bool = False

    @property
    def ready_file(self) -> Path:
        return self.directory.with_suffix(".ready")

    @property
    def restart_file(self) -> Path:
        return self.directory.with_suffix(".restart")

    @property
    def log_file(self) -> Path:
        return self.directory.with_suffix(".log")

    @property
    def state(self) -> State:
        if self.process is None or self.process.poll() is not None:
            return "ended"
        if self.stopping:
            return "stopping"
        return "ready" if self.ready_file.exists() else "starting"

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def last_words(self) -> str:
        """The last line of its log: why it ended."""
        try:
            lines = self.log_file.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


class LocalCluster:
    def __init__(self, directory: Path, nodes: int | None, base_port: int | None, settings: list[str]) -> None:
        """`nodes` and `base_port` None: what the directory says, or the defaults. `settings`: NAME=VALUE for all."""
        _check_settings(settings)
        self.directory = directory
        self._settings = settings
        self._lock = _lock(directory)
        try:
            self.plan = _plan(directory, nodes, base_port)
        except BaseException:
            os.close(self._lock)
            raise
        self.nodes = [_node(directory, self.plan, number) for number in range(1, self.plan.nodes + 1)]

    def start(self) -> None:
        self.prepare()
        for node in self.nodes:
            node.restart_file.unlink(missing_ok=True)
            self._launch(node)

    def prepare(self) -> None:
        """Once the nodes can have their ports, remember where they are; `CannotStart` if they cannot."""
        for node in self.nodes:
            host, _, port = node.address.rpartition(":")
            if not _is_free(host, int(port)):
                todo = (
                    "stop that program"
                    if _has_data(self.directory)
                    else f"stop that program, or choose another port: --base-port {self._free_base_port()}"
                )
                raise CannotStart(f"{node.address} is in use {holder(int(port))}; {todo}")
        _write_plan(self.directory / "cluster.json", self.plan)

    def _free_base_port(self) -> int:
        """The next one from which all nodes can have their ports."""
        for base in range(self.plan.base_port + self.plan.nodes, PORT_MAX - self.plan.nodes, self.plan.nodes):
            if all(_is_free(HOST, base + number) for number in range(self.plan.nodes)):
                return base
        return DEFAULT_BASE_PORT

    @property
    def running(self) -> list[LocalNode]:
        """Those that restart are about to run again."""
        return [node for node in self.nodes if node.restarting or node.state != "ended"]

    def restart_some(self) -> None:
        """Go on with restarts that were asked for. A node that runs is stopped in order first; nobody waits for it."""
        for node in self.nodes:
            if node.restart_file.exists() and not node.restarting:
                node.restarting = node.stopping = True
                if node.process is not None and node.process.poll() is None:
                    node.process.send_signal(signal.SIGTERM)
            if node.restarting and node.exit_code is not None:
                node.restarting = node.stopping = False
                if node.process is not None and node.process.stdin is not None:
                    node.process.stdin.close()
                self._launch(node)
                # Last: whoever asked waits for a ready file, and the old one is gone now.
                node.restart_file.unlink(missing_ok=True)

    def stop(self, controller: int | None = None, on_stopped: Callable[[LocalNode], None] = lambda node: None) -> None:
        """One after the other, the controller late, so that each hands over what it leads. When the rest would not be
        a majority any more there is nobody to hand over to: then all that are left at once."""
        majority = self.plan.nodes // 2 + 1
        order = sorted(self.running, key=lambda node: (node.number == controller, node.number))
        while len(order) > majority:
            self._terminate([order.pop(0)], on_stopped)
        self._terminate(order, on_stopped)

    def kill(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()

    def close(self) -> None:
        """End whatever still runs, and let others use the directory."""
        self.kill()
        for node in self.nodes:
            if node.process is not None and node.process.stdin is not None:
                node.process.stdin.close()
        os.close(self._lock)

    def _launch(self, node: LocalNode) -> None:
        node.ready_file.unlink(missing_ok=True)
        flags = {
            "--listen": node.address,
            "--http": HTTP_OFF,
            "--data-dir": str(node.directory),
            "--node-id": str(node.number),
            "--cluster-id": self.plan.cluster_id,
            "--voters": self.plan.voters,
            "--default-replication-factor": str(min(REPLICATION_MAX, self.plan.nodes)),
            "--ready-file": str(node.ready_file),
        }
        words = [f"{flag}={value}" for flag, value in flags.items()]
        others = ",".join(f"{other.number}@{other.address}" for other in self.nodes if other is not node)
        if others:
            # The metadata remembers where voters were first; `cluster.json` counts, should somebody have edited it.
            words.append(f"--set=peer_addresses={others}")
        words += [f"--set={setting}" for setting in self._settings]
        with open(node.log_file, "ab", opener=_private) as log:
            node.process = subprocess.Popen(
                # It ends when our end of its standard input does: no node is left behind, whatever becomes of us.
                [sys.executable, "-m", "skidway.testing.hosted", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours: they are stopped in order
            )

    def _terminate(self, nodes: list[LocalNode], on_stopped: Callable[[LocalNode], None]) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for node in nodes:
            node.stopping = True
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in nodes:
            if node.process is None:
                continue
            try:
                node.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
            on_stopped(node)


def ask_for_restart(directory: Path, number: int) -> LocalNode:
    """Have the process that runs the cluster restart a node. Nothing starts here, so a wrong name starts nothing."""
    file = directory / "cluster.json"
    if not file.exists():
        raise CannotStart(f"there is no cluster in {directory}: name the --data-dir of skidway cluster start")
    plan = _read_plan(file)
    if not 1 <= number <= plan.nodes:
        raise CannotStart(f"the cluster in {directory} has no node {number}; its nodes are 1 to {plan.nodes}")
    try:
        os.close(_lock(directory))
    except CannotStart:
        pass  # it is locked: a cluster runs here
    else:
        start = f"skidway cluster start --data-dir {directory}"
        raise CannotStart(f"the cluster in {directory} is not running: start it with {start}")
    node = _node(directory, plan, number)
    node.restart_file.touch()
    return node


def await_restart(node: LocalNode, timeout_s: float) -> None:
    """Until the node asked for is ready; `CannotStart` with the last line of its log if it is not in time."""
    deadline = time.monotonic() + timeout_s
    while node.restart_file.exists() or not node.ready_file.exists():
        if time.monotonic() > deadline:
            node.restart_file.unlink(missing_ok=True)
            said = node.last_words()
            raise CannotStart(f"node {node.number} was not ready after {timeout_s:g} s; its log ends with: {said}")
        time.sleep(RESTART_LOOK_S)


def _node(directory: Path, plan: Plan, number: int) -> LocalNode:
    return LocalNode(number, plan.address(number), directory / f"node-{number}")


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        descriptor = os.open(directory / "cluster.lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise CannotStart(f"cannot use the directory {directory}: {(error.strerror or str(error)).lower()}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CannotStart(
            f"the cluster in {directory} is already running; stop it first, or choose another --data-dir"
        ) from None
    return descriptor


def _plan(directory: Path, nodes: int | None, base_port: int | None) -> Plan:
    file = directory / "cluster.json"
    if file.exists():
        known = _read_plan(file)
        if nodes not in (None, known.nodes):
            text = f"the cluster in {directory} has {known.nodes} nodes, not {nodes}"
            raise CannotStart(f"{text}; leave --nodes out, or choose another --data-dir")
        if base_port in (None, known.base_port):
            return known
        if _has_data(directory):
            text = f"the cluster in {directory} was made with --base-port {known.base_port}, and its metadata has the"
            raise CannotStart(
                f"{text} voters there, not at {base_port}; leave --base-port out, or choose another --data-dir"
            )
        plan = Plan(known.nodes, base_port or known.base_port, known.cluster_id)
    else:
        plan = Plan(nodes or DEFAULT_NODES, base_port or DEFAULT_BASE_PORT, secrets.token_hex(11))
    if plan.base_port + plan.nodes - 1 > PORT_MAX:
        raise CannotStart(f"{plan.nodes} ports from {plan.base_port} on: the highest port is {PORT_MAX}")
    return plan


def _has_data(directory: Path) -> bool:
    """Whether a node ran here once. One that found its port taken leaves nothing but its lock."""
    return any(entry.name != LOCK_NAME for folder in directory.glob("node-*/") for entry in folder.iterdir())


def _check_settings(settings: list[str]) -> None:
    """One complaint now, not one of every node."""
    words = [f"--voters=1@{HOST}:{DEFAULT_BASE_PORT}", *(f"--set={setting}" for setting in settings)]
    try:
        flags.settings_from(flags.build_parser("skidway").parse_args(words))
    except ConfigError as error:
        raise CannotStart(str(error)) from None


def _private(path: str, flags: int) -> int:
    """Logs name topics, groups and clients: as closed to other users as the data."""
    return os.open(path, flags, FILE_MODE)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def _write_plan(file: Path, plan: Plan) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
    temporary.replace(file)


def _read_plan(file: Path) -> Plan:
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    except (OSError, msgspec.DecodeError) as error:
        raise CannotStart(f"{file} cannot be read: {error}; expected nodes, base_port and cluster_id") from None
    if not 1 <= plan.nodes <= NODES_MAX:
        raise CannotStart(f"{file}: nodes is {plan.nodes}; expected 1 to {NODES_MAX}")
    return plan
