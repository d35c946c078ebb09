"""A network that can be cut: the program behind `skidway.testing.network`, a TCP proxy for every pair of nodes.

It is told on standard input, one JSON line each, and answers each with one line on standard output:
first `[[source, target, host, port], …]`, the routes; the answer is the port of each route on 127.0.0.1. Then, any
number of times, `[[source, target], …]`: between these nodes no byte travels in this direction from now on, between
all others it does. It ends when its standard input does.

What is cut behaves as a network that loses packets: nothing is refused or reset, bytes wait (in the buffers of the
systems) and go on when it is healed, and a new connection is not answered, as long as it is cut in either direction.
"""

import asyncio
import json
import socket
import sys
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

from skidway.limits import KIB

Direction = tuple[int, int]
READ_BYTES = 256 * KIB
BACKLOG = 64


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


class Proxy:
    def __init__(self) -> None:
        self._gates: defaultdict[Direction, asyncio.Event] = defaultdict(_open_gate)
        self._tasks: set[asyncio.Task[None]] = set()

    def add_route(self, source: int, target: int, host: str, port: int) -> int:
        listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        listening.setblocking(False)
        self._start(self._accept(listening, (source, target), (host, port)))
        return int(listening.getsockname()[1])

    def set_cut(self, directions: set[Direction]) -> None:
        for direction in directions | set(self._gates):
            if direction in directions:
                self._gates[direction].clear()
            else:
                self._gates[direction].set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket, direction: Direction, address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(listening)
            self._start(self._carry(near, direction, address))

    async def _carry(self, near: socket.socket, direction: Direction, address: tuple[str, int]) -> None:
        """One connection of a node to another, from its beginning to its end."""
        loop = asyncio.get_running_loop()
        there, back = self._gates[direction], self._gates[direction[::-1]]
        far = socket.socket()
        far.setblocking(False)
        with near, far:
            while not (there.is_set() and back.is_set()):
                await there.wait()
                await back.wait()
            try:
                await loop.sock_connect(far, address)
            except OSError:
                return
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pumps = [asyncio.ensure_future(_pump(near, far, there)), asyncio.ensure_future(_pump(far, near, back))]
            # Nodes close both ways at once: when one has ended, so has the other.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)


async def _pump(source: socket.socket, target: socket.socket, gate: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            await gate.wait()
            data = await loop.sock_recv(source, READ_BYTES)
            await gate.wait()  # it may have been cut while we waited for the bytes: then they have not arrived
            if not data:
                return
            await loop.sock_sendall(target, data)
    except OSError:
        # A reset travels as any other packet.
        await gate.wait()


async def serve() -> None:
    proxy = Proxy()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    routes = json.loads(await reader.readline())
    print(json.dumps([proxy.add_route(*route) for route in routes]), flush=True)
    while line := await reader.readline():
        proxy.set_cut({(source, target) for source, target in json.loads(line)})
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
