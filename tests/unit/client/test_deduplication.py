"""Once per id and window, with each of the real stores: SQLite, Redis and PostgreSQL."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from database_servers import Absent, postgres_server, redis_server

from skidway.client import sql_marks
from skidway.client.deduplication import Deduplicator, InProgress, message_id
from skidway.client.redis_marks import RedisMarks
from skidway.client.sql_marks import TABLE, NotBetweenTransactions, PostgresMarks, SqliteMarks
from waiting import eventually

pytestmark = pytest.mark.xdist_group("databases")  # one server of each kind for all tests

MakeMarks = Callable[[], Any]


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    try:
        with redis_server() as url:
            yield url
    except Absent as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    try:
        with postgres_server() as place:
            yield place
    except Absent as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def make_marks(request: pytest.FixtureRequest, tmp_path: Path) -> MakeMarks:
    """Each call is another process's view of the same marks."""
    if request.param == "sqlite":
        return lambda: SqliteMarks(str(tmp_path / "marks.db"))
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        redis.Redis.from_url(url).flushall()
        return lambda: RedisMarks(url)
    place = request.getfixturevalue("postgres")
    forget_all(place)
    return lambda: PostgresMarks(place)


@pytest.fixture(params=["sqlite", "postgres"])
def make_sql_marks(request: pytest.FixtureRequest, tmp_path: Path) -> MakeMarks:
    if request.param == "sqlite":
        return lambda: SqliteMarks(str(tmp_path / "marks.db"))
    place = request.getfixturevalue("postgres")
    forget_all(place)
    return lambda: PostgresMarks(place)


def forget_all(place: str) -> None:
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute("DROP TABLE IF EXISTS effects")


def count(connection: Any, table: str = "effects") -> int:
    (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


def test_the_second_time_nothing_happens(make_marks: MakeMarks) -> None:
    done: list[str] = []
    first, second = Deduplicator(make_marks()), Deduplicator(make_marks())
    assert first.once("a", lambda _: done.append("a")) is True
    assert second.once("a", lambda _: done.append("a again")) is False
    assert second.once("b", lambda _: done.append("b")) is True
    assert done == ["a", "b"]
    assert (first.duplicates, second.duplicates) == (0, 1)


def test_scopes_do_not_know_each_other(make_marks: MakeMarks) -> None:
    done: list[str] = []
    for scope, identity in (("a", "b:c"), ("a:b", "c"), ("", "a:b:c"), ("", "1:a:b:c")):
        assert Deduplicator(make_marks(), scope=scope).once(identity, lambda _: done.append(""))
    assert len(done) == 4


def test_work_that_fails_leaves_no_mark(make_marks: MakeMarks) -> None:
    deduplicator = Deduplicator(make_marks())
    with pytest.raises(ZeroDivisionError):
        deduplicator.once("a", lambda _: 1 / 0)
    assert deduplicator.once("a", lambda _: None) is True


@pytest.mark.parametrize("identity", ["", "x" * 2000, "naïve 🦆", "it's; DROP TABLE", "%s", "a\nb"])
def test_any_text_is_an_id(make_marks: MakeMarks, identity: str) -> None:
    deduplicator = Deduplicator(make_marks())
    assert [deduplicator.once(identity, lambda _: None) for _ in range(2)] == [True, False]


def test_of_many_at_once_one_works(make_marks: MakeMarks) -> None:
    done: list[int] = []
    make_marks()
    gate = threading.Barrier(8)

    def note(identity: int) -> None:
        time.sleep(0.01)
        done.append(identity)

    def work(number: int) -> None:
        deduplicator = Deduplicator(make_marks())
        gate.wait()
        for identity in range(5):
            deduplicator.once(str(identity), lambda _: note(identity))  # noqa: B023

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_a_mark_counts_for_its_window_only(make_sql_marks: MakeMarks) -> None:
    now_ms = 1_000_000
    deduplicator = Deduplicator(make_sql_marks(), window_ms=500, clock=lambda: now_ms)
    assert deduplicator.once("a", lambda _: None)
    now_ms += 499
    assert not deduplicator.once("a", lambda _: None)
    now_ms += 1
    assert deduplicator.once("a", lambda _: None)
    now_ms += 499
    assert not deduplicator.once("a", lambda _: None)


def test_old_marks_are_swept_away(make_sql_marks: MakeMarks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_marks, "SWEEP_EVERY", 50)
    now_ms = 0
    marks = make_sql_marks()
    deduplicator = Deduplicator(marks, window_ms=100, clock=lambda: now_ms)
    for number in range(300):
        now_ms += 1
        deduplicator.once(str(number), lambda _: None)
    assert count(marks.connection, TABLE) == 100


def test_the_mark_and_the_writes_are_one(make_sql_marks: MakeMarks) -> None:
    marks = make_sql_marks()
    marks.connection.execute("CREATE TABLE effects (id TEXT)")
    deduplicator = Deduplicator(marks)

    def half(connection: Any) -> None:
        connection.execute("INSERT INTO effects VALUES ('a')")
        raise OSError("died in the middle")

    with pytest.raises(OSError, match="middle"):
        deduplicator.once("a", half)
    other = make_sql_marks()
    assert (count(other.connection), count(other.connection, TABLE)) == (0, 0)
    assert deduplicator.once("a", lambda connection: connection.execute("INSERT INTO effects VALUES ('a')"))
    assert (count(other.connection), count(other.connection, TABLE)) == (1, 1)


def test_a_failed_statement_of_the_work_is_rolled_back_too(make_sql_marks: MakeMarks) -> None:
    deduplicator = Deduplicator(make_sql_marks())
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        deduplicator.once("a", lambda connection: connection.execute("INSERT INTO nowhere VALUES (1)"))
    assert deduplicator.once("a", lambda _: None)


def test_inside_a_transaction_it_refuses(make_sql_marks: MakeMarks) -> None:
    marks = make_sql_marks()
    marks.connection.execute("BEGIN")
    with pytest.raises(NotBetweenTransactions):
        Deduplicator(marks).once("a", lambda _: None)
    marks.connection.execute("ROLLBACK")
    assert Deduplicator(marks).once("a", lambda _: None)


def test_work_must_not_commit(tmp_path: Path, postgres: str) -> None:
    with pytest.raises(Exception, match="transaction"):
        Deduplicator(SqliteMarks(str(tmp_path / "a.db"))).once("a", lambda connection: connection.commit())
    forget_all(postgres)
    with pytest.raises(psycopg.ProgrammingError, match="commit"):
        Deduplicator(PostgresMarks(postgres)).once("a", lambda connection: connection.commit())


def test_connections_of_your_own(tmp_path: Path, postgres: str) -> None:
    own = sqlite3.connect(tmp_path / "own.db")
    assert [Deduplicator(SqliteMarks(own)).once("own", lambda _: None) for _ in range(2)] == [True, False]
    with psycopg.connect(postgres) as connection:
        assert [Deduplicator(PostgresMarks(connection)).once("own", lambda _: None) for _ in range(2)] == [True, False]
    assert Deduplicator(PostgresMarks(postgres)).once("own", lambda _: None) is False


VICTIM = """
import os, signal, sys
from skidway.client.deduplication import Deduplicator
from skidway.client.sql_marks import PostgresMarks, SqliteMarks
marks = (SqliteMarks if sys.argv[1] == "sqlite" else PostgresMarks)(sys.argv[2])
def work(connection):
    connection.execute("INSERT INTO effects VALUES ('half')")
    os.kill(os.getpid(), signal.SIGKILL)
Deduplicator(marks).once("a", work)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_between_the_write_and_the_commit(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "marks.db") if kind == "sqlite" else request.getfixturevalue("postgres")
    if kind == "postgres":
        forget_all(place)
    marks: Any = SqliteMarks(place) if kind == "sqlite" else PostgresMarks(place)
    marks.connection.execute("CREATE TABLE effects (id TEXT)")
    ended = subprocess.run([sys.executable, "-c", VICTIM, kind, place], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert count(marks.connection) == 0
    assert Deduplicator(marks).once("a", lambda connection: connection.execute("INSERT INTO effects VALUES ('whole')"))
    assert count(marks.connection) == 1


def test_redis_forgets_after_the_window(redis_url: str) -> None:
    deduplicator = Deduplicator(RedisMarks(redis_url), window_ms=2_000, scope=os.urandom(4).hex())
    assert [deduplicator.once("a", lambda _: None) for _ in range(2)] == [True, False]
    eventually(lambda: deduplicator.once("a", lambda _: None))


def test_redis_without_a_lease_counts_a_crash_as_done(redis_url: str) -> None:
    """At most once: the mark is there before the work."""
    marks, scope = RedisMarks(redis_url), os.urandom(4).hex()

    def while_working(_: object) -> None:
        assert Deduplicator(RedisMarks(redis_url), scope=scope).once("a", lambda _: None) is False

    assert Deduplicator(marks, scope=scope).once("a", while_working)


def test_redis_with_a_lease_says_that_somebody_is_at_it(redis_url: str) -> None:
    scope = os.urandom(4).hex()
    other = Deduplicator(RedisMarks(redis_url, lease_ms=60_000), scope=scope)

    def while_working(_: object) -> None:
        with pytest.raises(InProgress):
            other.once("a", lambda _: None)

    assert Deduplicator(RedisMarks(redis_url, lease_ms=60_000), scope=scope).once("a", while_working)
    assert other.once("a", lambda _: None) is False


def test_redis_with_a_lease_lets_another_do_what_a_dead_one_began(redis_url: str) -> None:
    scope = os.urandom(4).hex()
    code = (
        "import os, sys\n"
        "from skidway.client.deduplication import Deduplicator\n"
        "from skidway.client.redis_marks import RedisMarks\n"
        "marks = RedisMarks(sys.argv[1], lease_ms=5000)\n"
        "Deduplicator(marks, scope=sys.argv[2]).once('a', lambda _: os._exit(9))\n"
    )
    assert subprocess.run([sys.executable, "-c", code, redis_url, scope], timeout=60).returncode == 9
    survivor = Deduplicator(RedisMarks(redis_url, lease_ms=5000), scope=scope)
    with pytest.raises(InProgress):
        survivor.once("a", lambda _: None)

    def is_free() -> bool:
        with contextlib.suppress(InProgress):
            return survivor.once("a", lambda _: None)
        return False

    eventually(is_free)


def test_redis_takes_back_its_own_claim_only(redis_url: str) -> None:
    """The claim ended during slow work and is another's now: failing must not free it."""
    scope = os.urandom(4).hex()
    slow = Deduplicator(RedisMarks(redis_url, lease_ms=50), scope=scope)
    other = Deduplicator(RedisMarks(redis_url, lease_ms=60_000), scope=scope)

    def fail_late(_: object) -> None:
        time.sleep(0.2)
        assert other.once("a", lambda _: None)
        raise OSError("too late")

    with pytest.raises(OSError, match="too late"):
        slow.once("a", fail_late)
    assert other.once("a", lambda _: None) is False


class FakeMessage:
    def __init__(self, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._headers = headers

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 14


def test_a_message_is_named_by_its_header_or_its_place() -> None:
    assert message_id(FakeMessage([("x", b"1"), ("message-id", b"o-17")])) == "o-17"
    assert message_id(FakeMessage([("order", b"17")]), header="order") == "17"
    assert message_id(FakeMessage(None)) == "orders/3/14"
    assert message_id(FakeMessage([("message-id", None)])) == "orders/3/14"
