"""A broker from start to stop: limits of the process, data directory, node, sockets, signals, orderly end.

Stopping: no new clients, replies on their way leave (for `drain_ms` at most), syncs finish, the node closes its logs.
A second signal ends the process at once; the logs are then recovered at the next start like after a crash.
"""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import msgspec.structs

from skidway import __version__
from skidway.broker.api.table import SERVED
from skidway.broker.identity import PATH as IDENTITY
from skidway.broker.identity import WrongDataDirectory
from skidway.broker.listeners import Address, Listeners, ListenerSpec
from skidway.errors import InvalidConfig, ProtocolError
from skidway.limits import Limits
from skidway.ports import Clock
from skidway.server import assembly, descriptors
from skidway.server.advertised import warn_if_unreachable
from skidway.server.carriage import CARRIAGES
from skidway.server.clients import Clients
from skidway.server.clock import SystemClock, SystemRandom
from skidway.server.config import Settings
from skidway.server.dialer import Dialer
from skidway.server.disk import DataDirectoryInUse, RealDisk
from skidway.server.listener import Listener, bind
from skidway.server.served import WholeNode
from skidway.server.service_links import service_links
from skidway.server.turn import Turn

log = logging.getLogger("skidway.server")

SYNC_TIMEOUT_S = 30.0
LEAVE_CHECK_S = 0.01
CLOSING_THREADS = 32
FREEZE_S = 0.25
LOAD_S = 0.02
MAINTENANCE_MS_MAX = 60_000
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

MakeNode = Callable[[Settings, Listeners, RealDisk, SystemClock, SystemRandom], WholeNode]


class StartError(Exception):
    """The broker cannot start; the message is for the operator."""


def run(
    settings: Settings,
    *,
    ready_file: str | None = None,
    make_node: MakeNode = assembly.make_node,
    hangup: type[Exception] | None = None,
    use_uvloop: bool = True,
) -> None:
    """Serve until SIGTERM or SIGINT. `make_node` and `hangup` let tests serve something else."""
    if not __debug__:
        raise StartError("a broker needs its assertions: start Python without -O, and unset PYTHONOPTIMIZE")
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT, stream=sys.stderr)
    if links := service_links(os.environ):
        log.info(
            "ignored variables that describe a service (%d, such as %s): they are not settings", len(links), links[0]
        )
    total = descriptors.raise_limit()
    given = descriptors.share_out(settings.limits, total)
    descriptors.report(settings.limits, given, total)
    settings = msgspec.structs.replace(settings, limits=given.limits)
    if settings.require_data and not os.path.exists(os.path.join(settings.data_dir, IDENTITY)):
        raise StartError(
            f"require_data is set and {settings.data_dir} has no data of a node: is it mistyped or not mounted? "
            "Leave require_data out for the first start of a node"
        )
    try:
        disk = RealDisk(settings.data_dir, files_max=given.files)
    except DataDirectoryInUse as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise StartError(f"cannot use the data directory {settings.data_dir}: {error.strerror}") from None
    try:
        broker = Broker(settings, disk, make_node, hangup or assembly.hangup_type(), ready_file, given.waiting)
        _run_loop(broker.serve(), use_uvloop)
    finally:
        gc.enable()
        disk.close()


class Broker:
    def __init__(
        self,
        settings: Settings,
        disk: RealDisk,
        make_node: MakeNode,
        hangup: type[Exception],
        ready_file: str | None,
        waiting_max: int,
    ) -> None:
        self._waiting_max = waiting_max
        self._settings = settings
        self._disk = disk
        self._make_node = make_node
        self._hangup = hangup
        self._ready_file = ready_file
        self._clock: Clock = SystemClock()
        self._maintenance_timer: asyncio.TimerHandle | None = None
        self._freezing: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        settings, clock = self._settings, SystemClock()
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        # Signals first: one that comes while the logs are recovered is obeyed as soon as the node is open.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _on_signal, stop)
        # Ports are taken before the node opens, because the node tells them to clients; nobody is accepted yet.
        specs, sockets = _bind_all(settings.listener_list())
        try:
            node = self._make_node(settings, specs.kafka, self._disk, clock, SystemRandom())
        except InvalidConfig as error:
            _close_all(sockets)
            raise StartError(f"topic_defaults: {error}") from None
        dialer = Dialer(loop, clock, settings.limits, CARRIAGES[specs.inter_broker.security])
        node.peers.dial = dialer.dial
        gc.disable()  # next to nothing of what is made until clients are served is garbage
        try:
            node.open(clock.monotonic_ms(), clock.wall_ms(), _side_by_side)
        except (OSError, ProtocolError, WrongDataDirectory) as error:
            _close_all(sockets)
            raise StartError(f"cannot serve the data in {self._disk.root}: {error}") from error
        turn = Turn(loop, node, clock, sync_threads=settings.sync_threads)
        clients = Clients(
            loop,
            node,
            turn,
            clock,
            settings.limits,
            hangup=self._hangup,
            waiting_max=self._waiting_max,
            files_short=lambda: self._disk.files_short,
        )
        node.on_limits = lambda limits: self._follow_limits(clients, limits)
        self._follow_limits(clients, node.limits)
        dialer.attach(turn)
        turn.settle()
        listeners = [self._listener(spec, clients, node) for spec in specs]
        self._spare_what_stays(loop, node, turn)
        gc.enable()
        clients.start()
        for listener, bound in zip(listeners, sockets, strict=True):
            try:
                await listener.start(bound)
            except OSError as error:
                if listener.spec.optional:
                    specs = _go_without(specs, listener.spec, error)
                    continue
                await self._stop(node, turn, listeners, clients, dialer)
                _close_all(sockets)
                raise _cannot_listen(listener.spec, error) from None
        self._maintain(loop, node, turn)
        self._tell_ready(specs)
        has_http = any(not spec.is_kafka for spec in specs)
        _load_rest(loop, chain([row.load for row in SERVED.values()], assembly.load_http() if has_http else ()))
        for spec in specs.kafka:
            warn_if_unreachable(spec, chosen=settings.chose_address_of(spec.name))
        await stop.wait()
        await self._stop(node, turn, listeners, clients, dialer)

    def _listener(self, spec: ListenerSpec, clients: Clients, node: WholeNode) -> Listener:
        settings, own = self._settings, self._settings.of_listener(spec.name)
        size = own.send_buffer_bytes
        return Listener(
            spec,
            CARRIAGES[spec.security],
            clients,
            door=None if spec.is_kafka else assembly.make_http_door(node, settings, spec, clients.turn.measures),
            send_buffer_bytes=settings.send_buffer_bytes if size is None else size,
            connections_max=own.connections_max,
            connections_per_ip_max=own.connections_per_ip_max,
        )

    async def _stop(
        self, node: WholeNode, turn: Turn, listeners: list[Listener], clients: Clients, dialer: Dialer
    ) -> None:
        log.info("stopping: no new clients are accepted, %d are still connected", len(clients.connected))
        for timer in (self._maintenance_timer, self._freezing):
            if timer is not None:
                timer.cancel()
        await self._leave(node, turn)
        node.begin_stop(self._clock.monotonic_ms())
        turn.settle()
        for listener in listeners:
            listener.stop_accepting()
        dropped = await clients.drain(self._settings.drain_ms / 1000)
        if dropped:
            log.warning("dropped %d clients before their replies were sent", dropped)
        # Before the last syncs: what a follower goes on to fetch would need one more, and one more.
        dialer.close()
        synced = await turn.finish(SYNC_TIMEOUT_S)
        turn.close()
        try:
            node.close(synced, _side_by_side)
        except OSError as error:
            # Every acknowledged batch is where it was promised to be; what is missing only saves work at the start.
            log.warning(
                "stopped, but some checkpoints could not be saved (%s): the next start recovers the logs", error
            )
            return
        log.info("stopped%s", "" if synced else ", with unfinished fsyncs: the next start recovers the logs")

    async def _leave(self, node: WholeNode, turn: Turn) -> None:
        """Have others lead what this broker leads, for as long as that may take; clients are served meanwhile."""
        node.leave(self._clock.monotonic_ms())
        turn.settle()
        give_up_ms = self._clock.monotonic_ms() + self._settings.leave_ms
        while not node.departed:
            if self._clock.monotonic_ms() >= give_up_ms:
                log.warning("stopping before other brokers took over all partitions of this one")
                return
            await asyncio.sleep(LEAVE_CHECK_S)

    def _spare_what_stays(self, loop: asyncio.AbstractEventLoop, node: WholeNode, turn: Turn) -> None:
        """The collector need not look again at what a start makes, which would stop the loop for milliseconds. Nor at
        thousands of partitions, which a member of a cluster opens while it runs."""
        waits = not node.serving
        if not waits or node.opening or self._freezing is None:
            turn.collecting.spare_what_is_there(self._clock)
        self._freezing = loop.call_later(FREEZE_S, self._spare_what_stays, loop, node, turn) if waits else None

    @staticmethod
    def _follow_limits(clients: Clients, limits: Limits) -> None:
        """What was changed at run time; still no more connections than this process may have files."""
        clients.follow(descriptors.share_out(limits, descriptors.raise_limit()).limits)

    def _maintain(self, loop: asyncio.AbstractEventLoop, node: WholeNode, turn: Turn) -> None:
        """Retention, checkpoints, compaction: the node knows which is due."""
        settings = self._settings
        interval_ms = min(settings.retention_check_ms, settings.checkpoint_ms, settings.compaction_check_ms)
        interval_ms = min(interval_ms, MAINTENANCE_MS_MAX)

        def due() -> None:
            try:
                node.maintain(self._clock.monotonic_ms(), self._clock.wall_ms())
            except Exception:
                log.exception("maintenance failed; the broker retries in %d ms", interval_ms)
            turn.settle()
            self._maintenance_timer = loop.call_later(interval_ms / 1000, due)

        self._maintenance_timer = loop.call_later(interval_ms / 1000, due)

    def _tell_ready(self, listeners: Listeners) -> None:
        settings = self._settings
        if self._ready_file is not None:
            temporary = f"{self._ready_file}.tmp"
            with open(temporary, "w", encoding="utf-8") as file:  # once, before anyone is served
                file.writelines(f"{spec.written(spec.bind)}\n" for spec in listeners)
            os.replace(temporary, self._ready_file)  # whoever waits for the file finds it whole
        told = "; ".join(map(_ready_on, listeners))
        where = f"(node {settings.node_id}, data in {self._disk.root})"
        print(f"skidway {__version__} ready on {told} {where}", flush=True)


def _load_rest(loop: asyncio.AbstractEventLoop, pieces: Iterator[Callable[[], Any]]) -> None:
    """What first requests need, one piece after the other, once clients are served. None of them is to find the files
    gone: the package may be upgraded while this process runs, and there may be no descriptor left to open them with."""
    if (load := next(pieces, None)) is not None:
        load()
        loop.call_later(LOAD_S, _load_rest, loop, pieces)


def _ready_on(listener: ListenerSpec) -> str:
    told = "" if listener.advertised == listener.bind else f", advertised to clients as {listener.advertised}"
    return listener.written(listener.bind) + told


def _bind_all(listeners: Listeners) -> tuple[Listeners, list[socket.socket]]:
    """The listeners with the ports that they got, and a socket for each."""
    sockets: list[socket.socket] = []
    taken: dict[Address, ListenerSpec] = {}
    for spec in listeners:
        try:
            sockets.append(bind(spec.bind.host, spec.bind.port))
        except OSError as error:
            if spec.optional:
                listeners = _go_without(listeners, spec, error)
                continue
            _close_all(sockets)
            raise _cannot_listen(spec, error) from None
        # One address can be written in many ways, and two sockets may have it until one of them listens.
        address = Address(*sockets[-1].getsockname()[:2])
        other = taken.setdefault(address, spec)
        if other is not spec:
            _close_all(sockets)
            text = f"{other.name} and {spec.name} would share the address {address}: every listener needs its own"
            raise StartError(text)
    return listeners.bound_to([int(bound.getsockname()[1]) for bound in sockets]), sockets


def _go_without(listeners: Listeners, spec: ListenerSpec, error: OSError) -> Listeners:
    """A listener that nobody asked for."""
    from skidway.server.port_in_use import holder  # nobody else needs it

    why = f"in use {holder(spec.bind.port)}" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    text = "this broker does not answer HTTP: %s is %s; choose another address with --http HOST:PORT, or --no-http"
    log.warning(text, spec.bind, why)
    return listeners.without(spec)


def _cannot_listen(listener: ListenerSpec, error: OSError) -> StartError:
    from skidway.server.port_in_use import explain  # nobody else needs it

    return StartError(explain(listener, error))


def _close_all(sockets: list[socket.socket]) -> None:
    for bound in sockets:
        bound.close()


def _side_by_side(jobs: list[Callable[[], None]]) -> None:
    """Syncs of many files at once share the disk's journal: a stop with a thousand partitions takes seconds."""
    if not jobs:
        return
    with ThreadPoolExecutor(min(CLOSING_THREADS, len(jobs))) as pool:
        for finished in [pool.submit(job) for job in jobs]:
            finished.result()


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        log.warning("second signal: exiting immediately")
        logging.shutdown()
        os._exit(1)
    stop.set()


def _run_loop(main: Coroutine[Any, Any, None], use_uvloop: bool) -> None:
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if use_uvloop:
        try:
            import uvloop

            new_loop = uvloop.new_event_loop
        except ImportError:
            log.info("uvloop is not installed: the broker uses asyncio's own event loop, which is slower")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)
