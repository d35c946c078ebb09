"""One machine: a `Node` with its disk, its clock and its randomness, and the shell around it on virtual time.

The shell does what `server/` does: bytes into connections, replies out at the end of a pass, jobs to a few workers
that take their time, the timer, maintenance now and then, outgoing connections for `Peers`. A machine can
lose its power (the disk forgets what was not synced), its process can be killed (the page cache stays), be stopped in
an orderly way, and be paused: then everything that would happen to it waits, and comes at once afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from skidway.broker.api.call import Hangup, Malformed
from skidway.broker.api.connection import Connection
from skidway.broker.events import Event
from skidway.broker.identity import WrongDataDirectory
from skidway.broker.node import Node
from skidway.broker.settings import NodeSettings
from skidway.errors import ProtocolError
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.ports import FileSlice
from skidway.replica.news import BadBatchFetched
from skidway.runtime.jobs import Job, Lane
from skidway.runtime.turn import TurnDriver
from skidway.server.event_text import line_of
from skidway.sim.world.disk import Crashed, SimDisk
from skidway.sim.world.events import MS, SECOND, Violation, World
from skidway.sim.world.network import End, Network

WORKERS = {Lane.SYNC: 4, Lane.MAINTENANCE: 1, Lane.COMPACTION: 1, Lane.REQUEST: 2}
MAINTENANCE_US = SECOND
LEAVE_US = 10 * MS
LEAVE_TRIES = 500
WALL_START_MS = 1_790_000_000_000


class HostClock:
    """A clock that runs a little fast or slow. Only its wall time ever jumps."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._base_ms = random.randrange(1_000_000)
        self.drift_ppm = 0
        self.wall_offset_ms = WALL_START_MS + random.randrange(2_000)

    def monotonic_ms(self) -> int:
        now = self._world.now_us
        return self._base_ms + (now + now * self.drift_ppm // 1_000_000) // MS

    def wall_ms(self) -> int:
        return self.monotonic_ms() + self.wall_offset_ms

    def world_us(self, monotonic_ms: int) -> int:
        """When this clock will show that time."""
        local_us = (monotonic_ms - self._base_ms) * MS
        return local_us * 1_000_000 // (1_000_000 + self.drift_ppm) + 1


@dataclass(slots=True)
class DiskSpeed:
    """How long a ticket takes; now and then a disk stalls."""

    sync_us: int = 2 * MS
    stall_us: int = 0
    stall_chance: float = 0.0


class _Inbound:
    """A connection that somebody opened to this node: what `server.tcp.Client` is in production."""

    __slots__ = ("buffer", "connection", "end", "host", "waiting")

    def __init__(self, host: Host, end: End, connection: Connection) -> None:
        self.host = host
        self.end = end
        self.connection = connection
        self.buffer = bytearray()
        self.waiting = False
        connection.on_ready = self._on_ready

    def receive(self, data: bytes) -> None:
        self.buffer += data
        if not self.waiting:
            self.handle()

    def handle(self) -> None:
        connection = self.connection
        if connection.gone or not self.buffer:
            return
        self.waiting = False
        now_ms = self.host.clock.monotonic_ms()
        try:
            done = connection.receive(memoryview(bytearray(self.buffer)), now_ms)
        except Hangup as reason:
            self._hang_up(reason)
            return
        del self.buffer[:done]
        self.send()
        if connection.paused:
            self.waiting = True
            if connection.yielded or not connection.pending:
                self.host.soon(self._again)

    def _hang_up(self, reason: Hangup) -> None:
        # To hang up is an answer too, where a node is not ready or cut off; but every request here is well made.
        if isinstance(reason, Malformed):
            raise Violation("no-hangup", f"{self.host.name} dropped {self.connection.peer}: {reason}") from reason
        self.send()
        self.end.close()
        self.closed()

    def _again(self) -> None:
        if self.waiting:
            self.handle()

    def _on_ready(self) -> None:
        if self not in self.host.ready:
            self.host.ready[self] = None
            self.host.schedule()

    def flush(self) -> None:
        if self.connection.gone:
            return
        if isinstance(self.connection.bug, Hangup):
            self._hang_up(self.connection.bug)
            return
        if self.connection.bug is not None:
            raise self.connection.bug
        self.send()
        if self.waiting:
            self.handle()

    def send(self) -> None:
        outbox = self.connection.outbox
        if outbox:
            data = b"".join([part.read() if isinstance(part, FileSlice) else part for part in outbox])
            outbox.clear()
            self.end.send(data)

    def closed(self) -> None:
        self.connection.closed()
        self.host.inbound.pop(self, None)


class _Outbound:
    """A connection that `Peers` asked for: what `server.dialer` is in production."""

    __slots__ = ("buffer", "end", "host", "life", "link")

    def __init__(self, host: Host, link: Any) -> None:
        self.host = host
        self.link = link
        self.life = host.life
        self.end: End | None = None
        self.buffer = bytearray()
        link.on_ready = self._on_ready
        link.hangup = self._hang_up

    def opened(self, end: End) -> None:
        if not end.open:
            self.failed()
            return
        self.end = end
        end.on_bytes = lambda data: self.host.enter(self.life, partial(self._receive, data))
        end.on_closed = lambda: self.host.enter(self.life, self._closed)
        self.host.outbound[self] = None
        self.link.opened(self.host.clock.monotonic_ms())
        self._send()

    def failed(self) -> None:
        self.link.closed(self.host.clock.monotonic_ms())

    def _receive(self, data: bytes) -> None:
        self.buffer += data
        done = self.link.receive(memoryview(bytes(self.buffer)), self.host.clock.monotonic_ms())
        del self.buffer[:done]
        self.host.schedule()

    def _closed(self) -> None:
        self.host.outbound.pop(self, None)
        self.end = None
        self.link.closed(self.host.clock.monotonic_ms())

    def _on_ready(self) -> None:
        if self.end is not None and self not in self.host.ready:
            self.host.ready[self] = None
            self.host.schedule()

    def _hang_up(self) -> None:
        end = self.end
        if end is not None:
            self.end = None
            self.host.outbound.pop(self, None)
            end.close()
            self.host.soon(lambda: self.link.closed(self.host.clock.monotonic_ms()))

    def flush(self) -> None:
        self._send()

    def _send(self) -> None:
        outbox = self.link.outbox
        if outbox and self.end is not None:
            data = b"".join(outbox)
            outbox.clear()
            self.end.send(data)


class Host:
    def __init__(
        self,
        world: World,
        network: Network,
        settings: NodeSettings,
        *,
        disk: SimDisk | None = None,
        limits: Limits = DEFAULT_LIMITS,
        speed: DiskSpeed | None = None,
    ) -> None:
        self.world = world
        self.network = network
        self.settings = settings
        self.limits = limits
        self.listener = settings.listeners.inter_broker
        """The only one: clients come by it too."""
        self.name = self.listener.advertised.host
        self.address = (self.name, self.listener.advertised.port)
        self.random = world.stream(f"{self.name} node")
        self._disk_random = world.stream(f"{self.name} disk")
        self._speed_random = world.stream(f"{self.name} speed")
        self._cache_random = world.stream(f"{self.name} page cache")
        self.clock = HostClock(world, world.stream(f"{self.name} clock"))
        self.disk = SimDisk() if disk is None else disk
        self.speed = DiskSpeed() if speed is None else speed
        self.node: Node | None = None
        self.life = 0
        self.paused = False
        self.retired = False
        """Taken away for good: whoever was to start it again later finds nothing."""
        self.on_crash: Callable[[Host], None] = lambda host: None
        """Called at the instant before the power goes, with the node as it was."""
        self.on_starting: Callable[[Host], None] = lambda host: None
        """Called before a new node looks at the disk."""
        self.reported: list[Event] = []
        """What the node of now has reported to its operator."""
        self.on_start: Callable[[Host], None] = lambda host: None
        self.on_step: Callable[[Host], None] = lambda host: None
        self.judge: Callable[[Host, Event], str] = _judge
        """Which law an event of its node breaks, if any."""
        self.inbound: dict[_Inbound, None] = {}
        self.outbound: dict[_Outbound, None] = {}
        self.ready: dict[_Inbound | _Outbound, None] = {}
        self._backlog: deque[Callable[[], None]] = deque()
        self._free_workers: dict[Lane, int] = {}
        self._jobs: dict[Lane, deque[Job]] = {}
        self._running: dict[Job, None] = {}
        """Jobs that workers have and that have not run yet."""
        self._told_us = 0
        self._stopping = self._refusing = False

    @property
    def is_hurt(self) -> bool:
        """Its disk failed it, and only a new start may help."""
        node = self.node
        return node is not None and (node.failure is not None or any(p.log.quarantined for p in node.partitions))

    # --- life ---

    def start(self) -> bool:
        """Recover and serve. False when the disk does not let it."""
        if self.node is not None or self.retired:
            return True
        self._reset()
        self.on_starting(self)
        node = Node(
            self.settings,
            self.disk,
            self.clock,
            self.random,
            self.limits,
            report=self._on_event,
        )
        node.peers.dial = self._dial
        self._driver = TurnDriver(node, self.clock, self)
        self.node = node
        try:
            node.open(self.clock.monotonic_ms(), self.clock.wall_ms())
        except Crashed:
            self.world.say(self.name, "power lost during the start")
            self._leave(silent=True)
            self.disk.crash(self._disk_random)
            return False
        except (OSError, ProtocolError, WrongDataDirectory) as error:
            self.node = None
            self.world.say(self.name, f"does not start: {error}")
            return False
        self.world.say(self.name, f"started, life {self.life}")
        self.network.listen(self.address, self.name, self._accept)
        self.on_start(self)
        life = self.life
        self._driver.schedule()
        self.world.after(_maintenance_us(self.settings), lambda: self._maintain(life))
        return True

    def _on_event(self, event: Event) -> None:
        line = line_of(event)
        self.world.say(self.name, line)
        self.reported.append(event)
        if law := self.judge(self, event):
            # From outside of the node, which would take it for a mistake of its own.
            self.world.after(0, partial(_broken, law, f"{self.name}: {line}"))

    def _reset(self) -> None:
        self.life += 1
        self.paused = False
        self.reported.clear()
        self._backlog.clear()
        self._stopping = self._refusing = False
        self._free_workers = dict(WORKERS)
        self._jobs = {lane: deque() for lane in Lane}
        self._running = {}
        self.inbound, self.outbound, self.ready = {}, {}, {}

    def power_off(self) -> None:
        """What is not synced is lost or torn; nobody is told."""
        self._die("power lost", silent=self._disk_random.random() < 0.5)
        self.disk.crash(self._disk_random)

    def kill(self) -> None:
        """The process ends at once; the machine goes on, so files keep what was written.

        After a failed sync some of it is in memory only, where it may stay or not, and no process can find out.
        """
        self._die("killed", silent=False)
        self._end_process()

    def _end_process(self) -> None:
        self.disk.kill()
        self.disk.evict(self._cache_random)

    def _die(self, how: str, *, silent: bool) -> None:
        if self.node is None:
            return
        self.on_crash(self)
        self.world.say(self.name, how)
        self._tear_tickets()
        self._leave(silent=silent)

    def _tear_tickets(self) -> None:
        """Workers were in the middle of something: some of it happened."""
        for job in self._running:
            fate = self._disk_random.randrange(3)
            if fate == 0:
                continue
            self.disk.crash_at = None if fate == 1 else self.disk.operations + 1 + self._disk_random.randrange(6)
            try:
                job.run()
            except (Crashed, OSError):
                pass
        self.disk.crash_at = None

    def _leave(self, *, silent: bool) -> None:
        self.node = None
        self.life += 1
        self.paused = False
        self.network.stop_listening(self.address)
        ends = [inbound.end for inbound in self.inbound]
        ends += [outbound.end for outbound in self.outbound if outbound.end is not None]
        self.inbound, self.outbound, self.ready = {}, {}, {}
        for end in ends:
            if silent:
                end.vanish()
            else:
                end.close()

    def stop(self) -> None:
        """An orderly stop: what is under way is answered, everything is saved, the marker is written."""
        node = self.node
        if node is None or self._stopping:
            return
        self._stopping = True
        node.leave(self.clock.monotonic_ms())
        self._driver.schedule()
        self._leave_or_wait(LEAVE_TRIES)

    def _leave_or_wait(self, tries: int) -> None:
        node, life = self.node, self.life
        assert node is not None
        if not node.departed and tries:
            self.world.after(LEAVE_US, lambda: self.enter(life, lambda: self._leave_or_wait(tries - 1)))
            return
        self._refusing = True
        node.begin_stop(self.clock.monotonic_ms())
        self._driver.schedule()
        self.world.after(100 * MS, lambda: self.enter(life, lambda: self._finish_stop(30)))

    def _finish_stop(self, tries: int) -> None:
        if (self._running or any(self._jobs.values())) and tries:
            life = self.life
            self.world.after(100 * MS, lambda: self.enter(life, lambda: self._finish_stop(tries - 1)))
            return
        node = self.node
        assert node is not None
        self.on_crash(self)
        try:
            node.close(clean=not self._running)
        except OSError as error:
            self.world.say(self.name, f"clean stop failed: {error}")
        self.world.say(self.name, "stopped")
        self._leave(silent=False)
        self._end_process()

    def pause(self) -> None:
        if self.node is not None:
            self.paused = True
            self.world.say(self.name, "paused")

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        self.world.say(self.name, f"resumed, {len(self._backlog)} events late")
        backlog, self._backlog = self._backlog, deque()
        life = self.life
        for step in backlog:
            self.enter(life, step)

    # --- entering the node ---

    def enter(self, life: int, step: Callable[[], None]) -> None:
        """Everything that happens to this machine comes through here."""
        if life != self.life or self.node is None:
            return
        if self.paused:
            self._backlog.append(step)
            return
        try:
            step()
        except Crashed:
            self.power_off()
            return
        if life == self.life:
            self._driver.check_deadline()
            self.on_step(self)

    def soon(self, step: Callable[[], None]) -> None:
        life = self.life
        self.world.after(0, lambda: self.enter(life, step))

    def schedule(self) -> None:
        """End the node's turn soon."""
        self._driver.schedule()

    # --- what the driver of turns calls ---

    def end_turn_soon(self) -> None:
        self.world.after(20, partial(self.enter, self.life, self._driver.end_scheduled))

    def start_job(self, job: Job) -> None:
        self._jobs[job.lane].append(job)
        self._work(job.lane)

    def turn_ended(self) -> None:
        ready, self.ready = self.ready, {}
        for each in ready:
            each.flush()

    def wake_at(self, deadline_ms: int) -> None:
        when_us = max(self.clock.world_us(deadline_ms), self.world.now_us + MS)
        self.world.at(when_us, partial(self.enter, self.life, partial(self._driver.on_timer, deadline_ms)))

    def attempt(self, step: Callable[..., None], *arguments: object) -> bool:
        """A bug ends the run."""
        step(*arguments)
        return True

    def retry_soon(self) -> None:
        raise AssertionError("a bug ends the run")

    def _maintain(self, life: int) -> None:
        def due() -> None:
            node = self.node
            assert node is not None
            if not self._stopping:
                node.maintain(self.clock.monotonic_ms(), self.clock.wall_ms())
                self._driver.end()

        if life == self.life:
            self.enter(life, due)
            self.world.after(_maintenance_us(self.settings), lambda: self._maintain(life))

    # --- workers ---

    def _work(self, lane: Lane) -> None:
        jobs = self._jobs[lane]
        while jobs and self._free_workers[lane]:
            self._free_workers[lane] -= 1
            job = jobs.popleft()
            self._running[job] = None
            half_us = self._job_us() // 2
            self.world.after(half_us, partial(self._run_job, self.life, job, half_us))

    def _job_us(self) -> int:
        speed, random = self.speed, self._speed_random
        took = 100 + int(random.expovariate(1 / speed.sync_us))
        if speed.stall_chance and random.random() < speed.stall_chance:
            took += random.randrange(1, speed.stall_us)
        return took

    def _run_job(self, life: int, job: Job, rest_us: int) -> None:
        """On a worker thread, so also while the process is paused it would go on; here it waits with it."""
        error: OSError | None = None

        def run() -> None:
            nonlocal error
            self._running.pop(job, None)
            try:
                job.run()
            except OSError as failure:
                error = failure
            # Results come back in the order in which the workers had them.
            self._told_us = max(self._told_us, self.world.now_us + rest_us)
            self.world.at(self._told_us, lambda: self.enter(life, done))

        def done() -> None:
            self._free_workers[job.lane] += 1
            self._driver.finish_jobs([(job, error)])
            self._work(job.lane)

        self.enter(life, run)

    # --- connections ---

    def _accept(self, end: End) -> None:
        node = self.node
        if node is None or self._refusing:
            end.close()
            return
        life = self.life
        inbound = _Inbound(self, end, node.connect(f"{end.far}:1000", self.listener.name))
        self.inbound[inbound] = None
        end.on_bytes = lambda data: self.enter(life, partial(inbound.receive, data))
        end.on_closed = lambda: self.enter(life, inbound.closed)

    def _dial(self, link: Any) -> None:
        outbound = _Outbound(self, link)
        life = self.life

        def opened(end: End) -> None:
            if life != self.life or self.node is None:
                end.close()
                return
            self.enter(life, lambda: outbound.opened(end))

        self.network.connect(self.name, (link.host, link.port), opened, lambda: self.enter(life, outbound.failed))


def _maintenance_us(settings: NodeSettings) -> int:
    return min(MAINTENANCE_US, settings.compaction_check_ms * MS)


def _judge(host: Host, event: Event) -> str:
    return "corrupt-read" if isinstance(event, BadBatchFetched) else ""


def _broken(law: str, text: str) -> None:
    raise Violation(law, text)
