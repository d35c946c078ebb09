"""A node's start: which logs can be believed, its part in the quorum, its partitions opened turn by turn.

Whoever is a quorum of its own waits for nobody: it elects itself, registers and opens everything on the spot, and
syncs there too. Any other node begins to open once the cluster has taken it in, beside all else it has to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from skidway.broker.identity import Identity
from skidway.broker.last_run import NO_EPOCH
from skidway.broker.partition import Partition, log_settings
from skidway.broker.quorum_host import QuorumHost
from skidway.errors import ProtocolError, StorageError
from skidway.log.logs import Job, Logs, run_all
from skidway.metadata.image import Endpoint
from skidway.metadata.operations import RegisterBroker
from skidway.metadata.topic_configs import resolve
from skidway.metadata.topic_names import CLUSTER_METADATA
from skidway.quorum.log import MetadataLog, load_voter_history
from skidway.quorum.state_file import StateFile
from skidway.quorum.voters import Member, Voter, Voters
from skidway.quorum.wire import METADATA_TOPIC_ID
from skidway.runtime.replicated import Operation
from skidway.runtime.timers import Timer

if TYPE_CHECKING:
    from skidway.broker.node import Node, Ticket

Reply = TypeVar("Reply")
Run = Callable[[list[Job]], None]
METADATA_CONFIG = {"flush": "sync", "retention.ms": "-1", "segment.ms": str(2**62)}


class Start:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._timer: Timer | None = None
        """When partitions go on being opened."""

    # --- what is on the disk ---

    def open_logs(self) -> Logs:
        """Nothing is loaded yet, but what will be can be believed."""
        node = self._node
        logs = Logs.open(node.disk, node.limits)
        if not node.last_run.is_sound:
            # After a clean stop everything was synced: then this is an older directory, or a copy.
            if not logs.clean and (written := logs.write_anew()):
                node.on_trouble(
                    f"{written} bytes that no sync had proven were written anew: the last run does not say that none "
                    "of its syncs failed"
                )
            node.last_run.note(NO_EPOCH)
        return logs

    def open_quorum(self, identity: Identity, wall_ms: int) -> QuorumHost:
        node = self._node
        settings = node.settings
        config = resolve(METADATA_CONFIG)
        log = node.logs.load_or_create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, log_settings(config), wall_ms)
        if log.quarantined:
            raise StorageError(f"the metadata cannot be trusted: {log.failure}")
        me = Member(settings.node_id, identity.directory_id)
        alone = [(settings.node_id, settings.host, settings.port)]
        told = Voters(Voter(Member(node_id), host, port) for node_id, host, port in settings.voters or alone)
        metadata = MetadataLog(log, node.clock)
        history = load_voter_history(metadata, told)
        # What this node was told last wins: addresses in the log may be old.
        for voter in [*history.latest, *told]:
            node.locate(voter.member.node_id, voter.host, voter.port)
        return QuorumHost(node, me, history, metadata, StateFile(node.disk))

    # --- partitions, turn by turn ---

    def begin_hosting(self) -> None:
        """The metadata is known up to this broker's own registration: open what is here, turn by turn."""
        self._node.hosting.start()
        self._go_on_opening()

    def _go_on_opening(self) -> None:
        if self._node.hosting.open_some():
            self.open_more_soon()

    def open_more_soon(self) -> None:
        """In another turn: whatever else has come is looked after first."""
        node, timer = self._node, self._timer
        if not node.hosting.started and (timer is None or not timer.armed):
            self._timer = node.timers.at(node.clock.monotonic_ms(), self._go_on_opening)

    # --- alone ---

    def open_alone(self, identity: Identity, now_ms: int, run: Run | None) -> None:
        """For a node that nobody else waits for: it serves when this returns."""
        node = self._node
        self._settle(now_ms)
        if not node.controls:
            # The disk takes nothing, not even an election. What is there can be read all the same, unless others hold
            # it too: they may have more of it, and this run has no epoch yet that would tell it from the last.
            node.quorum.publish_own()
            if not self._has_others:
                self.begin_hosting()
        elif not self._has_others and node.settings.is_broker:
            self._register(identity, now_ms)
        while node.opening:
            node.hosting.open_some()
            self._settle(now_ms, run)

    @property
    def _has_others(self) -> bool:
        node = self._node
        return bool(set(node.image.brokers) - {node.settings.node_id})

    def _register(self, identity: Identity, now_ms: int) -> None:
        """The only broker there is need not wait to be heard of."""
        node = self._node
        settings = node.settings
        registered = self._submit(
            RegisterBroker(
                settings.node_id,
                node.random.randbytes(16),
                [Endpoint("PLAINTEXT", settings.host, settings.port)],
                settings.rack,
                [identity.directory_id],
                fenced=False,
                previous_broker_epoch=node.logs.clean_epoch,
                new_leader_epochs=not node.logs.clean,
                log_end_offset=node.quorum.log.end_offset,
            ),
            now_ms,
        )
        node.registration.registered(registered.epoch, fenced=False)

    def _submit(self, operation: Operation[Reply], now_ms: int) -> Reply:
        replies: list[Reply | ProtocolError] = []
        self._node.submit(operation, now_ms, replies.append)
        self._settle(now_ms)
        (reply,) = replies
        if isinstance(reply, ProtocolError):
            raise reply
        return reply

    def _settle(self, now_ms: int, run: Run | None = None) -> None:
        """Syncs on the spot: nobody waits but us."""
        node = self._node
        while tickets := node.take_sync():
            failed: dict[Ticket, OSError] = {}
            (run or run_all)([partial(_try_to_run, ticket, failed) for _, ticket in tickets])
            for key, ticket in tickets:
                error = failed.get(ticket)
                if error is not None and not (isinstance(key, Partition) and node.hosting.is_settling(key)):
                    raise error
                node.on_synced(key, ticket, error, now_ms)


def _try_to_run(ticket: Ticket, failed: dict[Ticket, OSError]) -> None:
    try:
        ticket.run()
    except OSError as error:
        failed[ticket] = error
