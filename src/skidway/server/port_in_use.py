"""Why a broker cannot listen where it should, and what to do: for the person who starts it."""

import errno
import os
import socket
from collections.abc import Iterator
from itertools import takewhile

from skidway.broker.listeners import Address, ListenerSpec
from skidway.server.addresses import PORT_MAX

LISTENING = "0A"
"""The state, as /proc/net/tcp writes it."""
UNPRIVILEGED_PORT = 9092
PORTS_TRIED_MAX = 100
COMMAND_BYTES_MAX = 4_096
LIKELY = "probably by another broker (skidway serve, skidway cluster start or Apache Kafka)"


def explain(listener: ListenerSpec, error: OSError) -> str:
    """One sentence; what to do depends on what the system says."""
    address, written = listener.bind, listener.written
    failed = f"cannot listen on {address}"
    if error.errno == errno.EADDRINUSE:
        todo = f"stop that, or choose another port: --listen {written(next_free(address))}"
        doctor = f"skidway doctor --listen {address} checks what answers there"
        return f"{failed}: the port is in use {holder(address.port)}; {todo}; {doctor}"
    if error.errno == errno.EACCES:
        todo = f"choose another port: --listen {written(Address(address.host, UNPRIVILEGED_PORT))}"
        return f"{failed}: this user may not use that port; {todo}"
    if error.errno == errno.EADDRNOTAVAIL:
        everywhere = Address("0.0.0.0", address.port)
        prefix = written(everywhere).removesuffix(str(everywhere))
        todo = f"--listen {written(everywhere)} --advertise {prefix}HOST:PORT listens on all of its addresses"
        return f"{failed}: this machine does not have that address; {todo}"
    return str(error.strerror or error)


def holder(port: int) -> str:
    """Who has the port: the process if this user may see it, a guess if not."""
    process = next(_listening(port), None)
    return LIKELY if process is None else f"by process {process} ({_name(process)})"


def next_free(address: Address) -> Address:
    """The same host with a port nearby, or with any (0) if none nearby is free."""
    for port in range(address.port + 1, min(address.port + PORTS_TRIED_MAX, PORT_MAX) + 1):
        with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address.host, port))
            except OSError:
                continue
            return Address(address.host, port)
    return Address(address.host, 0)


def _listening(port: int) -> Iterator[int]:
    """Processes that listen on a port, as far as this user may look. None on systems without /proc."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not wanted:
        return
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted & set(_descriptors(name)):
            yield int(name)


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file]
        except OSError:
            continue
        for row in rows[1:]:
            if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port:
                yield row[9]


def _descriptors(process: str) -> Iterator[str]:
    folder = f"/proc/{process}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")
        except OSError:
            continue


def _name(process: int) -> str:
    """The program and its first words. Options are left out: some programs are given passwords that way."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            words = file.read(COMMAND_BYTES_MAX).decode(errors="replace").split("\0")
    except OSError:
        return "unknown"
    if os.path.basename(words[0]).startswith("python"):
        words = [word for word in words[1:] if word != "-m"] or words
    text = " ".join([os.path.basename(words[0]), *takewhile(lambda word: not word.startswith("-"), words[1:3])]).strip()
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "unknown"
