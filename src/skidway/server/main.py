"""A broker from start to stop: limits of the process, data directory, node, socket, signals, orderly end.

Stopping: no new clients, replies on their way leave (for `drain_ms` at most), syncs finish, the node closes its logs.
A second signal ends the process at once; the logs are then recovered at the next start like after a crash.
"""

import asyncio
import dataclasses
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec.structs

from skidway import __version__
from skidway.broker.identity import WrongDataDirectory
from skidway.errors import InvalidConfig, ProtocolError
from skidway.limits import Limits
from skidway.ports import Clock
from skidway.server import assembly
from skidway.server.addresses import Address
from skidway.server.clock import SystemClock, SystemRandom
from skidway.server.config import Settings
from skidway.server.dialer import Dialer
from skidway.server.disk import DataDirectoryInUse, RealDisk
from skidway.server.listener import Listener, bind
from skidway.server.turn import Turn

log = logging.getLogger("skidway.server")

SYNC_TIMEOUT_S = 30.0
LEAVE_CHECK_S = 0.01
CLOSING_THREADS = 32
FREEZE_S = 0.25
MAINTENANCE_MS_MAX = 60_000
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

MakeNode = Callable[[Settings, Address, RealDisk, SystemClock, SystemRandom], Any]


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
        raise StartError("runs with its assertions on: start Python without -O and PYTHONOPTIMIZE")
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT, stream=sys.stderr)
    limits = _fit_open_files(settings.limits, _raise_open_files_limit())
    settings = msgspec.structs.replace(settings, limits=limits)
    try:
        disk = RealDisk(settings.data_dir)
    except DataDirectoryInUse as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise StartError(f"cannot use the data directory {settings.data_dir}: {error.strerror}") from None
    try:
        broker = Broker(settings, disk, make_node, hangup or assembly.hangup_type(), ready_file)
        _run_loop(broker.serve(), use_uvloop)
    finally:
        disk.close()


class Broker:
    def __init__(
        self,
        settings: Settings,
        disk: RealDisk,
        make_node: MakeNode,
        hangup: type[Exception],
        ready_file: str | None,
    ) -> None:
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
        address = settings.listen_address()
        try:
            bound = bind(address.host, address.port)
        except OSError as error:
            raise StartError(str(error.strerror or error)) from None
        # The port is taken before the node opens, because the node tells it to clients; nobody is accepted yet.
        port = int(bound.getsockname()[1])
        try:
            node = self._make_node(settings, settings.advertised_address(port), self._disk, clock, SystemRandom())
        except InvalidConfig as error:
            bound.close()
            raise StartError(f"topic_defaults: {error}") from None
        dialer = Dialer(loop, clock, settings.limits)
        if (peers := getattr(node, "peers", None)) is not None:
            peers.dial = dialer.dial
        gc.disable()  # next to nothing of what is made here is garbage
        try:
            node.open(clock.monotonic_ms(), clock.wall_ms(), _side_by_side)
        except (OSError, ProtocolError, WrongDataDirectory) as error:
            bound.close()
            raise StartError(f"the data in {self._disk.root} cannot be served: {error}") from error
        finally:
            gc.enable()
        turn = Turn(loop, node, clock, sync_threads=settings.sync_threads)
        listener = Listener(loop, node, turn, clock, settings.limits, hangup=self._hangup)
        dialer.attach(turn)
        turn.settle()
        gc.collect()
        self._spare_what_stays(loop, node)
        await listener.start(bound)
        self._maintain(loop, node, turn)
        self._tell_ready(Address(address.host, port))
        await stop.wait()
        await self._stop(node, turn, listener, dialer)

    async def _stop(self, node: Any, turn: Turn, listener: Listener, dialer: Dialer) -> None:
        log.info("stopping: no new clients, %d to be answered", len(listener.clients))
        for timer in (self._maintenance_timer, self._freezing):
            if timer is not None:
                timer.cancel()
        await self._leave(node, turn)
        begin_stop = getattr(node, "begin_stop", None)
        if begin_stop is not None:
            begin_stop(self._clock.monotonic_ms())
            turn.settle()
        dropped = await listener.drain(self._settings.drain_ms / 1000)
        if dropped:
            log.warning("%d clients were dropped before their replies were out", dropped)
        # Before the last syncs: what a follower goes on to fetch would need one more, and one more.
        dialer.close()
        synced = await turn.finish(SYNC_TIMEOUT_S)
        turn.close()
        try:
            node.close(synced, _side_by_side)
        except OSError as error:
            # Every acknowledged batch is where it was promised to be; what is missing only saves work at the start.
            log.warning("stopped, but not all could be saved (%s): logs will be recovered at the next start", error)
            return
        log.info("stopped%s", "" if synced else ", with syncs unfinished: logs will be recovered at the next start")

    async def _leave(self, node: Any, turn: Turn) -> None:
        """Have others lead what this broker leads, for as long as that may take; clients are served meanwhile."""
        leave = getattr(node, "leave", None)
        if leave is None:
            return
        leave(self._clock.monotonic_ms())
        turn.settle()
        give_up_ms = self._clock.monotonic_ms() + self._settings.leave_ms
        while not node.departed:
            if self._clock.monotonic_ms() >= give_up_ms:
                log.warning("stopping although others still depend on this broker")
                return
            await asyncio.sleep(LEAVE_CHECK_S)

    def _spare_what_stays(self, loop: asyncio.AbstractEventLoop, node: Any) -> None:
        """The collector need not look again at what a start makes, which would stop the loop for milliseconds. Nor at
        thousands of partitions, which a member of a cluster opens while it runs."""
        waits = not getattr(node, "serving", True)
        if not waits or node.opening or self._freezing is None:
            gc.freeze()
        self._freezing = loop.call_later(FREEZE_S, self._spare_what_stays, loop, node) if waits else None

    def _maintain(self, loop: asyncio.AbstractEventLoop, node: Any, turn: Turn) -> None:
        """Retention, checkpoints, compaction: the node knows which is due."""
        settings = self._settings
        interval_ms = min(settings.retention_check_ms, settings.checkpoint_ms, settings.compaction_check_ms)
        interval_ms = min(interval_ms, MAINTENANCE_MS_MAX)

        def due() -> None:
            try:
                node.maintain(self._clock.monotonic_ms(), self._clock.wall_ms())
            except Exception:
                log.exception("maintenance failed; tried again in %d ms", interval_ms)
            turn.settle()
            self._maintenance_timer = loop.call_later(interval_ms / 1000, due)

        self._maintenance_timer = loop.call_later(interval_ms / 1000, due)

    def _tell_ready(self, address: Address) -> None:
        settings = self._settings
        if self._ready_file is not None:
            temporary = f"{self._ready_file}.tmp"
            with open(temporary, "w", encoding="utf-8") as file:  # once, before anyone is served
                file.write(f"{address}\n")
            os.replace(temporary, self._ready_file)  # whoever waits for the file finds it whole
        where = f"(node {settings.node_id}, data in {self._disk.root})"
        print(f"skidway {__version__} ready on {address} {where}", flush=True)


def _side_by_side(jobs: list[Callable[[], None]]) -> None:
    """Syncs of many files at once share the disk's journal: a stop with a thousand partitions takes seconds."""
    if not jobs:
        return
    with ThreadPoolExecutor(min(CLOSING_THREADS, len(jobs))) as pool:
        for finished in [pool.submit(job) for job in jobs]:
            finished.result()


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        log.warning("second signal: exiting at once")
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
            log.info("uvloop is not installed: serving with asyncio's own loop, more slowly")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


def _raise_open_files_limit() -> int:
    """As many as the system allows; returns that number."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft
    return hard


def _fit_open_files(limits: Limits, open_files_max: int) -> Limits:
    """However many clients come, half of the open files are left for the logs."""
    if open_files_max < 0 or limits.connections_max <= open_files_max // 2:
        return limits
    fitting = max(1, open_files_max // 2)
    log.warning("limits.connections_max is lowered to %d: this process may open %d files", fitting, open_files_max)
    per_ip = min(limits.connections_per_ip_max, fitting)
    return dataclasses.replace(limits, connections_max=fitting, connections_per_ip_max=per_ip)
