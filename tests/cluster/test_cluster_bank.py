"""A bank on three nodes that are killed: money is moved in transactions, and whoever looks sees all of it.

Clerks of both generations of clients carry out orders (`bank.py`, `bank_clerks.py`), auditors read along at
`read_committed`, and rounds of kill -9 meet leaders, coordinators, the controller and all nodes. In every round the
bank closes for a moment: then nothing may be torn, and the sum of all accounts is what it was. In the end everything is
read once more by another client and from the files of two replicas, and held against what the clerks were told.

`SKIDWAY_CHAOS_TRANSACTIONS` (200,000) is how many have to be committed in `make chaos`, `SKIDWAY_CHAOS_SEED` (1) is for
the dice.
"""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bank import GROUP, LEGS, ORDERS, PARTITIONS, PLACES, TOPICS, Book, Place, order_of, problems
from bank_clerks import BumpingClerk, Clerk, SteadyClerk
from cluster_calls import create_topic
from cluster_history import QUICK, read_all
from confluent_kafka import Producer
from replica_files import assert_replicas_equal, await_in_sync, batches_of

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, find_offsets
from skidway.blocking_client.reader import Reader
from skidway.records.batch import read_header
from skidway.records.control import read_end_transaction
from skidway.records.record import read_records
from skidway.testing import Cluster
from waiting import comes_true

TRANSACTIONS = int(os.environ.get("SKIDWAY_CHAOS_TRANSACTIONS", "200_000"))
SEED = int(os.environ.get("SKIDWAY_CHAOS_SEED", "1"))
NODES = (1, 2, 3)
PATIENCE_S = 180.0
HUNG_S = 30.0
ORDERS_LEFT = 300
MORE_ORDERS = 1_000
EVERYTHING = 1 << 62
SHORT_KILLS = ("leader", "coordinator", "all")
KILLS = ("leader", "coordinator", "group coordinator", "controller", "two", "all")
SETTINGS: dict[str, Any] = {"transactions": {"state_partitions": 6}, "flush": "os"}
"""Nobody loses power here: what the operating system has is there after a kill."""
PATIENT: dict[str, Any] = {"session_timeout_ms": 6_000, "quorum": {"fetch_timeout_ms": 4_000}}
"""So many clerks keep all cores busy: a node that waits for one is not down."""


class Auditor(threading.Thread):
    """Reads all books to their ends and further, with this repository's own client."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True, name="auditor")
        self.bootstrap = bootstrap
        self.book = Book()
        self.positions: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self.done = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self._read_on()
        except Exception as error:  # shown by the test
            self.error = error

    def _read_on(self) -> None:
        try:
            with Client(self.bootstrap, client_id="auditor") as client:
                reader = Reader(client, self.positions, isolation_level=READ_COMMITTED)
                while not self.done.is_set():
                    for record in reader.poll(100):
                        self.book.enter((record.topic, record.partition), record.offset, record.value)
                    # After the entries: whoever sees a position finds everything below it in the book.
                    self.positions = dict(reader.positions)
        except ClientError:
            time.sleep(0.05)  # another connection, from the last position on


class Bank:
    def __init__(self, cluster: Cluster, steady: int, bumping: int, orders: int, dice: Random) -> None:
        self.cluster = cluster
        self.dice = dice
        self.kills: Counter[str] = Counter()
        self.replaced = 0
        """Clerks that hung in their client."""
        clerks = steady + bumping
        for topic in TOPICS:
            create_topic(cluster, topic, PARTITIONS)
        create_topic(cluster, ORDERS, clerks)
        self._chief = Producer({**QUICK, "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        self._given = [0] * clerks
        """Orders, by branch."""
        for branch in range(clerks):
            self._give_orders(branch, orders)
        self.clerks: list[Clerk] = [SteadyClerk(cluster.bootstrap, branch) for branch in range(steady)]
        self.clerks += [BumpingClerk(cluster.bootstrap, branch) for branch in range(steady, clerks)]
        self.auditor = Auditor(cluster.bootstrap)

    def _give_orders(self, branch: int, count: int) -> None:
        first = self._given[branch]
        for number in range(first, first + count):
            self._chief.produce(ORDERS, order_of(branch, number).value, partition=branch)
        self._given[branch] += count
        assert self._chief.flush(PATIENCE_S) == 0

    def _give_more(self) -> None:
        """Who waits for a clerk that hangs must not wait for others that have done all they were told meanwhile."""
        for clerk in self.clerks:
            if len(clerk.notes.committed) + ORDERS_LEFT > self._given[clerk.branch]:
                self._give_orders(clerk.branch, MORE_ORDERS)

    @property
    def committed(self) -> int:
        return sum(len(clerk.notes.committed) for clerk in self.clerks)

    def open(self) -> None:
        self.auditor.start()
        for clerk in self.clerks:
            clerk.start()

    def goes_on(self, each: int) -> None:
        """Every clerk commits so many more."""
        wanted = {clerk.branch: len(clerk.notes.committed) + each for clerk in self.clerks}
        self._await(lambda clerk: len(clerk.notes.committed) >= wanted[clerk.branch])

    def _await(self, condition: Callable[[Clerk], bool]) -> None:
        """Of every clerk. Those that hang in their client are replaced meanwhile."""

        def others() -> list[Clerk]:
            self._replace_hung()
            self._give_more()
            return [clerk for clerk in self.clerks if not condition(clerk)]

        assert comes_true(lambda: not others(), PATIENCE_S), self._stuck(others())

    def _replace_hung(self) -> None:
        latest = time.monotonic() - HUNG_S
        for place, clerk in enumerate(self.clerks):
            may_rest = clerk.idle.is_set() and not clerk.open_for_business.is_set()
            if isinstance(clerk, SteadyClerk) and clerk.seen_at < latest and not may_rest:
                self.clerks[place] = another = clerk.successor()
                if not clerk.open_for_business.is_set():
                    another.close()
                self.replaced += 1
                another.start()

    def _stuck(self, clerks: list[Clerk]) -> str:
        """What can be found out before the cluster is gone."""
        ids = [clerk.id for clerk in clerks[:3]]
        told = [clerk.describe() for clerk in clerks[:3]]
        for arguments in [*(["transaction", "describe", name] for name in ids), ["cluster", "describe"]]:
            command = [sys.executable, "-m", "skidway", *arguments, "--bootstrap", self.cluster.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            told.append(done.stdout + done.stderr)
        told += [broker.output[-3_000:] for broker in self.cluster.brokers.values()]
        return f"{len(clerks)} clerks do not go on:\n" + "\n".join(told)

    def victims(self, kind: str) -> list[int]:
        match kind:
            case "leader":
                return [self.cluster.leader_of(*self.dice.choice(PLACES))]
            case "coordinator":
                return [self._coordinator(self.dice.choice(self.clerks).id, CoordinatorType.TRANSACTION)]
            case "group coordinator":
                return [self._coordinator(GROUP, CoordinatorType.GROUP)]
            case "controller":
                return [self.cluster.controller()]
            case "two":
                return self.dice.sample(NODES, 2)
            case _:
                return list(NODES)

    def _coordinator(self, key: str, kind: CoordinatorType) -> int:
        with Client(self.cluster.bootstrap) as client:
            port = Coordinators(client, kind).ask(key, lambda connection: connection.address.port)
        return next(node for node in NODES if self.cluster[node].port == port)

    def round(self, kind: str, each: int) -> None:
        """Somebody is killed while transactions are under way; with two of three nodes they go on."""
        self.goes_on(each)
        victims = self.victims(kind)
        self.cluster.kill(*victims)
        self.kills[kind] += len(victims)
        if len(victims) == 1:
            self.goes_on(each)
        self.cluster.start(*victims, wait=False)
        self.goes_on(1)
        await_in_sync(self.cluster, PLACES)
        self.rest()

    def pause(self) -> None:
        """No transaction is open, and none begins."""
        for clerk in self.clerks:
            clerk.close()
        self._await(lambda clerk: clerk.idle.is_set())
        assert [clerk.error for clerk in self.clerks if clerk.error is not None] == []

    def rest(self) -> None:
        """Meanwhile the auditor has seen each transaction whole, and no money came or went."""
        self.pause()
        ends = self._ends()
        seen = comes_true(lambda: all(self.auditor.positions[place] >= ends[place] for place in PLACES), PATIENCE_S)
        assert seen, f"the auditor is at {self.auditor.positions} of {ends}, {self.auditor.error}"
        unbalanced = self.auditor.book.unbalanced()
        assert unbalanced == [], "\n".join([*unbalanced, *self._evidence()])
        for clerk in self.clerks:
            clerk.open_for_business.set()

    def _evidence(self) -> list[str]:
        """Of transfers that are torn: what their clerk was told, what another reader sees, what is in the files."""
        torn = [transfer for transfer, legs in self.auditor.book.legs.items() if len(set(legs)) < len(LEGS)]
        committed = read_all(self.cluster.bootstrap, PLACES)
        found: list[str] = []
        for transfer in torn:
            notes = next(clerk.notes for clerk in self.clerks if clerk.branch == transfer.branch)
            told = [name for name in ("committed", "aborted", "unknown") if transfer in getattr(notes, name)]
            found.append(f"{transfer}: the clerk has it as {told}, {self.replaced} clerks were replaced")
            for place, value in transfer.entries(order_of(transfer.branch, transfer.order)):
                seen = [offset for offset, other in committed[place].items() if other == value]
                audited = [offset for offset, other in self.auditor.book.seen[place].items() if other == value]
                found.append(f"{value!r} in {place}: auditor {audited}, another reader {seen}")
                beginning = b"%d:%d:" % (transfer.branch, transfer.order)
                for node in NODES:
                    found += history_of(Path(self.cluster[node].data_dir, f"{place[0]}-{place[1]}"), beginning)
        return found + [broker.output[-3_000:] for broker in self.cluster.brokers.values()]

    def _ends(self) -> dict[Place, int]:
        """Where the books end, as soon as every transaction there has its marker."""
        ends: dict[Place, int] = {}

        def ended() -> bool:
            with Client(self.cluster.bootstrap) as client:
                for topic in TOPICS:
                    places = dict.fromkeys(range(PARTITIONS), LATEST)
                    written = find_offsets(client, topic, places, isolation_level=READ_UNCOMMITTED)
                    stable = find_offsets(client, topic, places, isolation_level=READ_COMMITTED)
                    if stable != written:
                        return False
                    ends.update({(topic, index): end for index, end in written.items()})
            return True

        assert comes_true(ended, PATIENCE_S), "a transaction never ends"
        return ends

    def close(self) -> None:
        self.pause()
        for clerk in self.clerks:
            clerk.done.set()
            clerk.join(PATIENCE_S)
            assert not clerk.is_alive()
            assert clerk.error is None, clerk.error
        ends = self._ends()
        assert comes_true(lambda: all(self.auditor.positions[place] >= ends[place] for place in PLACES), PATIENCE_S)
        self.auditor.done.set()
        self.auditor.join(PATIENCE_S)
        assert self.auditor.error is None, self.auditor.error

    def check(self) -> None:
        notes = [clerk.notes for clerk in self.clerks]
        with Client(self.cluster.bootstrap) as client:
            branches = [(ORDERS, clerk.branch) for clerk in self.clerks]
            found = Groups(client).committed_of(GROUP, branches, require_stable=True)
        offsets = {branch: committed.offset for (_, branch), committed in found.items()}
        book = self.auditor.book
        wrong = problems(book, notes, offsets)
        assert wrong == [], "\n".join(wrong)
        assert read_all(self.cluster.bootstrap, PLACES) == book.seen, "another client sees the same"
        # A check that cannot fail is none: somebody who reads what is not committed finds what was aborted.
        careless = Book().enter_all(read_all(self.cluster.bootstrap, PLACES, isolation_level="read_uncommitted"))
        aborted = [problem for problem in problems(careless, notes, offsets) if problem.startswith("aborted")]
        assert len(aborted) > len(self.clerks)
        assert_replicas_equal(self.cluster, PLACES)
        self.cluster.stop(*NODES)
        for topic, index in PLACES:
            for node in NODES[:2]:
                there = committed_in(Path(self.cluster[node].data_dir, f"{topic}-{index}"))
                assert there == book.seen[topic, index], "the files say the same"

    def describe(self, began: float) -> str:
        notes = [clerk.notes for clerk in self.clerks]
        aborted, resolved = sum(len(each.aborted) for each in notes), sum(each.resolved for each in notes)
        killed = ", ".join(f"{count} by {kind}" for kind, count in sorted(self.kills.items()))
        return (
            f"\n{self.committed:,} transactions committed and {aborted:,} aborted by {len(self.clerks)} clerks in"
            f" {time.monotonic() - began:.0f} s, {resolved:,} without an answer, {self.replaced} clerks hung;"
            f" {self.kills.total()} kills ({killed}): 0 torn, 0 lost, 0 twice, sum and offsets right"
        )


def committed_in(folder: Path) -> dict[int, bytes]:
    """What a reader of committed records sees, by a reader that knows nothing of the broker: batches of a producer are
    held back until its next marker."""
    visible: dict[int, bytes] = {}
    held: dict[int, dict[int, bytes]] = {}
    for batch in batches_of(folder, EVERYTHING):
        header = read_header(batch)
        records = read_records(batch, decompressed_bytes_max=1 << 20)
        if header.is_control:
            (marker,) = records
            values = held.pop(header.producer_id, {})
            if read_end_transaction(marker).committed:
                visible.update(values)
        else:
            held.setdefault(header.producer_id, {}).update(
                {record.offset: bytes(record.value or b"") for record in records}
            )
    assert held == {}, "a transaction that never ends"
    return visible


def history_of(folder: Path, beginning: bytes) -> list[str]:
    """What the producers of such values wrote around them: batches and markers, in order."""
    lines: list[tuple[int, str]] = []
    found: dict[int, int] = {}
    for batch in batches_of(folder, EVERYTHING):
        header = read_header(batch)
        records = list(read_records(batch, decompressed_bytes_max=1 << 20))
        values = [bytes(record.value or b"") for record in records]
        what = str(read_end_transaction(records[0]) if header.is_control else values)
        where = f"{header.base_offset}: epoch {header.producer_epoch}, sequence {header.base_sequence}"
        if not header.is_control and any(value.startswith(beginning) for value in values):
            found[header.producer_id] = len(lines)
        lines.append((header.producer_id, f"{where}, {what}"))
    told = [f"{folder.parent.name} {folder.name}, producers {list(found)}:"]
    for producer, at in found.items():
        told += [line for number, (whose, line) in enumerate(lines) if whose == producer and abs(number - at) < 60]
    return told


def test_no_money_is_lost_whoever_is_killed() -> None:
    began = time.monotonic()
    with Cluster(3, network=False, **SETTINGS) as cluster:
        bank = Bank(cluster, steady=2, bumping=4, orders=1_000, dice=Random(SEED))
        bank.open()
        for kind in SHORT_KILLS:
            bank.round(kind, each=4)
        bank.close()
        bank.check()
    print(bank.describe(began))


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
def test_no_money_is_lost_in_many_rounds() -> None:
    began = time.monotonic()
    steady, bumping, each = 4, 92, 6
    with Cluster(3, network=False, **SETTINGS, **PATIENT) as cluster:
        dice = Random(SEED)
        bank = Bank(cluster, steady, bumping, 3 * TRANSACTIONS // (steady + bumping), dice)
        bank.open()
        while bank.committed < TRANSACTIONS:
            kind = dice.choice(KILLS)
            bank.round(kind, each)
            print(f"{kind} killed: {bank.committed:,} committed after {time.monotonic() - began:.0f} s", flush=True)
        bank.close()
        bank.check()
    print(bank.describe(began))
