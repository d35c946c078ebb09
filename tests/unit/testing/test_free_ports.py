"""Ports that are given out once, also when several processes ask at the same time."""

import socket
import subprocess
import sys

from skidway.testing.free_ports import SIZE, free_ports


def test_a_port_that_is_used_is_left_out() -> None:
    with socket.create_server(("127.0.0.1", free_ports())) as used:
        given = {free_ports() for _ in range(2 * SIZE)}
        assert used.getsockname()[1] not in given
        assert len(given) > SIZE // 2


def test_ports_in_a_row_can_all_be_bound() -> None:
    for _ in range(SIZE):
        first = free_ports(3)
        for port in range(first, first + 3):
            socket.create_server(("127.0.0.1", port)).close()


def test_two_processes_never_get_the_same_port() -> None:
    """The other one still runs, as a test worker does, when this one asks."""
    asks = "from skidway.testing.free_ports import free_ports; print([free_ports() for _ in range(300)]); input()"
    with subprocess.Popen(
        [sys.executable, "-c", asks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = set(eval(other.stdout.readline()))
        ours = {free_ports() for _ in range(300)}
        other.communicate("\n")
    assert theirs
    assert ours
    assert not theirs & ours
