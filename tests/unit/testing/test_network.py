"""The network that can be cut: what waits, what goes on after healing, and which way."""

import socket
import threading
from collections.abc import Iterator

import pytest

from skidway.testing.network import Network

PATIENCE_S = 30.0
SILENCE_S = 0.2


class Node:
    """Listens like a node; the test is what it does."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(PATIENCE_S)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listening.getsockname()
        return host, port

    def accept(self) -> socket.socket:
        accepted, _ = self.listening.accept()
        accepted.settimeout(PATIENCE_S)
        return accepted


class World:
    def __init__(self) -> None:
        self.nodes = {number: Node() for number in (1, 2, 3)}
        self.network = Network({number: node.address for number, node in self.nodes.items()}).start()
        self.sockets: list[socket.socket] = []

    def dial(self, source: int, target: int) -> socket.socket:
        dialled = socket.create_connection(self.network.address(source, target), PATIENCE_S)
        self.sockets.append(dialled)
        return dialled

    def connect(self, source: int, target: int) -> tuple[socket.socket, socket.socket]:
        dialled = self.dial(source, target)
        accepted = self.nodes[target].accept()
        self.sockets.append(accepted)
        return dialled, accepted

    def close(self) -> None:
        self.network.close()
        self.network.close()
        for each in self.sockets:
            each.close()
        for node in self.nodes.values():
            node.listening.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def is_silent(receiving: socket.socket) -> bool:
    receiving.settimeout(SILENCE_S)
    try:
        receiving.recv(100)
    except TimeoutError:
        return True
    finally:
        receiving.settimeout(PATIENCE_S)
    return False


def says(sending: socket.socket, receiving: socket.socket, word: bytes) -> bool:
    sending.sendall(word)
    return receiving.recv(100) == word


def test_bytes_go_both_ways(world: World) -> None:
    near, far = world.connect(1, 2)
    assert says(near, far, b"hello")
    assert says(far, near, b"good day")
    near.close()
    assert far.recv(100) == b""


def test_a_large_message_arrives_whole(world: World) -> None:
    near, far = world.connect(1, 2)
    message = bytes(range(256)) * 40_000
    far.setblocking(True)
    near.settimeout(None)
    sending = threading.Thread(target=near.sendall, args=(message,))
    sending.start()
    received = bytearray()
    while len(received) < len(message):
        received += far.recv(1 << 20)
    sending.join()
    assert received == message


def test_one_way(world: World) -> None:
    """What 1 says is not heard by 2, whoever opened the connection; what 2 says is heard by 1."""
    near, far = world.connect(1, 2)
    back_near, back_far = world.connect(2, 1)
    world.network.cut([(1, 2)])
    near.sendall(b"lost?")
    assert is_silent(far)
    assert says(far, near, b"heard")
    back_far.sendall(b"an answer")
    assert is_silent(back_near)
    assert says(back_near, back_far, b"a question")
    assert says(*world.connect(1, 3), b"others do not notice")
    world.network.heal()
    assert far.recv(100) == b"lost?"  # it waited
    assert back_near.recv(100) == b"an answer"


def test_a_partition(world: World) -> None:
    near, far = world.connect(1, 2)
    world.network.partition([[1]])
    assert world.network.cut_off == {(1, 2), (1, 3), (2, 1), (3, 1)}
    near.sendall(b"x")
    far.sendall(b"y")
    assert is_silent(far)
    assert is_silent(near)
    assert says(*world.connect(2, 3), b"z")
    world.network.heal()
    assert far.recv(100) == b"x"
    assert near.recv(100) == b"y"


def test_an_end_that_cannot_be_heard_of(world: World) -> None:
    near, far = world.connect(1, 2)
    world.network.cut([(1, 2)])
    near.close()
    assert is_silent(far)
    world.network.heal()
    assert far.recv(100) == b""


@pytest.mark.parametrize("direction", [(1, 2), (2, 1)])
def test_nobody_connects_through_a_cut(world: World, direction: tuple[int, int]) -> None:
    world.network.cut([direction])
    near = world.dial(1, 2)
    near.sendall(b"anybody?")
    world.nodes[2].listening.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        world.nodes[2].accept()
    world.nodes[2].listening.settimeout(PATIENCE_S)
    world.network.heal()
    assert world.nodes[2].accept().recv(100) == b"anybody?"


def test_a_node_that_is_down(world: World) -> None:
    world.nodes[2].listening.close()
    near = world.dial(1, 2)
    try:
        assert near.recv(100) == b""
    except ConnectionResetError:
        pass


def test_cuts_add_up_and_mistakes_are_told(world: World) -> None:
    world.network.cut([(1, 2)])
    world.network.cut([(1, 3)])
    assert world.network.cut_off == {(1, 2), (1, 3)}
    with pytest.raises(ValueError, match="no way from 1 to 9"):
        world.network.cut([(1, 9)])
    with pytest.raises(ValueError, match="may be in one group"):
        world.network.partition([[1, 2], [2, 3]])
