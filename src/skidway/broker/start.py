"""A node's start: which logs can be believed, its part in the quorum, its partitions opened turn by turn.

Whoever is a quorum of its own waits for nobody: it elects itself, registers and opens everything on the spot, and
syncs there too. Any other node begins to open once the cluster has taken it in, beside all else it has to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from skidway.broker.cluster.controller_access import ControllerAccess
from skidway.broker.cluster.peers import Peers
from skidway.broker.cluster.quorum_host import QuorumHost, Subscriber
from skidway.broker.cluster.registration import Registration
from skidway.broker.events import DoubtAtStart, UnsyncedRewritten
from skidway.broker.identity import Identity
from skidway.broker.last_run import NO_EPOCH, LastRun
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.partition import Partition, log_settings
from skidway.broker.upkeep.syncs import Syncs
from skidway.broker.world import World
from skidway.errors import ProtocolError, StorageError
from skidway.log.logs import Action, Logs, run_all
from skidway.metadata.features import SUPPORTED
from skidway.metadata.image import Endpoint
from skidway.metadata.operations import RegisterBroker
from skidway.metadata.topic_configs import resolve
from skidway.metadata.topic_names import CLUSTER_METADATA
from skidway.quorum.log import MetadataLog, load_voter_history
from skidway.quorum.state_file import METADATA_DIRECTORY, StateFile
from skidway.quorum.voters import Member, Voter, Voters
from skidway.quorum.wire import METADATA_TOPIC_ID
from skidway.replica.news import LogCut
from skidway.runtime.jobs import Job
from skidway.runtime.replicated import Operation
from skidway.runtime.timers import Timer
from skidway.runtime.turn import TurnNotes

Reply = TypeVar("Reply")
Run = Callable[[list[Action]], None]
HOLD_METADATA = (".log", ".checkpoint")
"""How the names of the files end that hold metadata: of segments and of snapshots."""
METADATA_CONFIG = {"flush": "sync", "retention.ms": "-1", "segment.ms": str(2**62)}


# --- what is on the disk ---


def open_logs(world: World, last_run: LastRun) -> Logs:
    """Nothing is loaded yet, but what will be can be believed."""
    logs = Logs(world.disk, world.limits, intact=last_run.has_opened)
    for trouble in logs.troubles:
        world.report(DoubtAtStart(trouble))
    _refuse_lost_metadata(world, last_run, logs)
    # After a clean stop everything was synced: then this is an older directory, or a copy.
    if not last_run.is_sound and not logs.clean and (written := logs.write_anew()):
        world.report(UnsyncedRewritten(written))
    if not last_run.is_same_boot:
        last_run.note(NO_EPOCH)
    return logs


def _refuse_lost_metadata(world: World, last_run: LastRun, logs: Logs) -> None:
    """A node that has taken part in a cluster and begins with empty metadata would begin another cluster, set all
    topics aside, or vote for a leader that lacks what it had stored itself."""
    directory = METADATA_DIRECTORY
    is_there = world.disk.exists(directory)
    names = world.disk.list(directory) if is_there else []
    has_records = any(name.endswith(HOLD_METADATA) and world.disk.size(f"{directory}/{name}") for name in names)
    state = StateFile(world.disk)
    is_lost = (_had_metadata(world, last_run, logs) and not has_records) or (state.has_copy and not is_there)
    if is_lost:
        raise StorageError(
            f"{directory} in the data directory is missing or empty, but this node has run with it: its metadata "
            f"is lost. Restore {directory} from a backup of this node. In a cluster whose other voters are well, "
            "move the whole data directory away instead: the node comes back empty and fetches everything again"
        )
    if has_records and not state.exists:
        raise StorageError(
            f"quorum-state is missing from {directory} and from the data directory: without it this node could "
            "vote twice in one epoch. Restore it from a backup of this node, or move the whole data directory away"
        )


def _had_metadata(world: World, last_run: LastRun, logs: Logs) -> bool:
    """Whether this data directory is known to have held records of the metadata, so that no crash explains that it
    holds none. Another node may have registered this one before any record was stored here."""
    is_only_voter = {number for number, _, _ in world.settings.voters} <= {world.settings.node_id}
    committed = logs.committed_in(CLUSTER_METADATA, 0, METADATA_TOPIC_ID)
    # All logs are opened when the metadata was read up to the own registration, and a kill loses nothing of that.
    return committed > 0 or last_run.has_opened or (is_only_voter and last_run.was_registered)


def open_quorum(
    world: World,
    turn: TurnNotes[Partition],
    peers: Peers,
    logs: Logs,
    identity: Identity,
    subscriber: Subscriber,
    wall_ms: int,
) -> QuorumHost:
    settings = world.settings
    config = resolve(METADATA_CONFIG)
    log = logs.load_or_create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, log_settings(config), wall_ms)
    if log.quarantined:
        raise StorageError(f"the metadata log is damaged: {log.failure}")
    # What is committed counts here as known once it is synced: after a loss of power, a log that ends below what it
    # knew is damaged.
    log.is_flushed = True
    for cut in log.cuts:
        world.report(LogCut(log.directory, cut))
    me = Member(settings.node_id, identity.directory_id)
    here = settings.listeners.inter_broker.advertised
    alone = [(settings.node_id, here.host, here.port)]
    told = Voters(Voter(Member(node_id), host, port) for node_id, host, port in settings.voters or alone)
    metadata = MetadataLog(log, world.clock)
    history = load_voter_history(metadata, told)
    # What this node was told last wins: addresses in the log may be old.
    for voter in [*history.latest, *told]:
        subscriber.locate(voter.member.node_id, voter.host, voter.port)
    state = StateFile(world.disk)
    host = QuorumHost(world, turn, peers, identity.cluster_id, subscriber, me, history, metadata, state)
    if state.trouble:
        world.report(DoubtAtStart(state.trouble))
    return host


class Start:
    """Opens partitions, turn by turn."""

    def __init__(self, world: World, hosting: Hosting) -> None:
        self._world = world
        self._hosting = hosting
        self._timer: Timer | None = None
        """When partitions go on being opened."""

    def begin_hosting(self) -> None:
        """The metadata is known up to this broker's own registration: open what is here, turn by turn."""
        self._hosting.start()
        self._go_on_opening()

    def _go_on_opening(self) -> None:
        if self._hosting.open_some():
            self.open_more_soon()

    def open_more_soon(self) -> None:
        """In another turn: whatever else has come is looked after first."""
        world, timer = self._world, self._timer
        if not self._hosting.started and (timer is None or not timer.armed):
            self._timer = world.timers.at(world.clock.monotonic_ms(), self._go_on_opening)


class StartAlone:
    """The start of a node that is a quorum of its own."""

    def __init__(
        self,
        world: World,
        identity: Identity,
        logs: Logs,
        hosting: Hosting,
        quorum: QuorumHost,
        controller: ControllerAccess,
        registration: Registration,
        syncs: Syncs,
        start: Start,
        end_turn: Callable[[], list[Job]],
    ) -> None:
        self._world = world
        self._identity = identity
        self._logs = logs
        self._hosting = hosting
        self._quorum = quorum
        self._controller = controller
        self._registration = registration
        self._syncs = syncs
        self._start = start
        self._end_turn = end_turn

    def open(self, now_ms: int, run: Run | None) -> None:
        """The node serves when this returns."""
        self._settle(now_ms)
        if not self._controller.is_here:
            # The disk takes nothing, not even an election. What is there can be read all the same, unless others hold
            # it too: they may have more of it, and this run has no epoch yet that would tell it from the last.
            self._quorum.publish_own()
            if not self._has_others:
                self._start.begin_hosting()
        elif not self._has_others and self._world.settings.is_broker:
            self._register(now_ms)
        while self._hosting.begun and not self._hosting.started:
            self._hosting.open_some()
            self._settle(now_ms, run)

    @property
    def _has_others(self) -> bool:
        return bool(set(self._hosting.image.brokers) - {self._world.settings.node_id})

    def _register(self, now_ms: int) -> None:
        """The only broker there is need not wait to be heard of."""
        settings = self._world.settings
        registered = self._submit(
            RegisterBroker(
                settings.node_id,
                self._world.random.randbytes(16),
                [
                    Endpoint(spec.name, spec.advertised.host, spec.advertised.port, spec.security)
                    for spec in settings.listeners
                ],
                settings.rack,
                [self._identity.directory_id],
                SUPPORTED,
                fenced=False,
                previous_broker_epoch=self._logs.clean_epoch,
                new_leader_epochs=not self._logs.clean,
                log_end_offset=self._quorum.log.end_offset,
            ),
            now_ms,
        )
        self._registration.registered(registered.epoch, fenced=False)

    def _submit(self, operation: Operation[Reply], now_ms: int) -> Reply:
        replies: list[Reply | ProtocolError] = []
        self._controller.carry_out(operation, now_ms, replies.append)
        self._settle(now_ms)
        (reply,) = replies
        if isinstance(reply, ProtocolError):
            raise reply
        return reply

    def _settle(self, now_ms: int, run: Run | None = None) -> None:
        """Syncs on the spot: nobody waits but us."""
        while jobs := self._end_turn():
            failed: dict[Job, OSError] = {}
            (run or run_all)([partial(_try_to_run, job, failed) for job in jobs])
            for job in jobs:
                error = failed.get(job)
                if error is not None and not self._syncs.is_of_settling(job):
                    raise error
                job.done(error, now_ms)


def _try_to_run(job: Job, failed: dict[Job, OSError]) -> None:
    try:
        job.run()
    except OSError as error:
        failed[job] = error
