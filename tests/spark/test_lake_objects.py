"""Tables in an object store: a real S3 server, and a way to it that loses replies. Tasks are called without Spark."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import merged_tables
import pyarrow as pa
import pytest
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType
from s3_server import BUCKET, LOSE_REPLY, LOSE_REQUEST, PASS, s3_server, unsafe_way, use

from skidway.spark.lake import BadTable, Target, open_table
from skidway.spark.lake.merging import open_merged
from skidway.spark.lake.staging import Attempt, DataFile
from skidway.spark.lake.uploading import Part, PartWriter, data_file, escaped, runs
from skidway.spark.lease import keeping
from skidway.spark.lease.keeping import Busy, hold
from skidway.spark.objects import BadStore, Bucket, ObjectStore, bucket_of

QUERY = "11111111-aaaa"
FORMATS = ("parquet", "delta", "iceberg")
FRAME: Any = SimpleNamespace(
    schema=StructType(
        [
            StructField("id", LongType()),
            StructField("at", TimestampType()),
            StructField("colour", StringType()),
            StructField("day", DateType()),
        ]
    )
)
ROWS = 20


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def address(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    use(monkeypatch, server)
    return server


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of pyiceberg's configuration, as a user has it; pyiceberg reads that when it is imported."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__TEAM__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEAM__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    return "team"


def target(kind: str, name: str, catalog: str, scheme: str = "s3") -> Target:
    return Target(f"{scheme}://{BUCKET}/{name}/events", kind, ["colour", "day"], catalog if kind == "iceberg" else None)


def rows(batch: int) -> pa.RecordBatch:
    """As Spark hands them to a task: sorted by the columns to partition by, times in the session's zone."""
    import datetime

    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    colours = [None if number % 7 == 0 else f"red: 100%/{number % 2}" for number in numbers]
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "at": pa.array([1_794_787_200_000_000 + number for number in numbers], pa.timestamp("us", "Europe/Vienna")),
            "colour": pa.array(colours, pa.string()),
            "day": pa.array([datetime.date(2026, 11, 15)] * ROWS, pa.date32()),
        }
    )
    return table.sort_by([("colour", "ascending")]).combine_chunks().to_batches()[0]


def uploaded(table: Any, attempt: Attempt) -> list[DataFile]:
    writer = PartWriter.of(Part(attempt, table.partition_by, table.keeps_partition_columns))
    writer.write(rows(attempt.batch))
    answers = writer.finish()
    return [data_file({name: value for name, value in one.items() if name != "counts"}) for one in answers]


def write(where: Target, batch: int) -> bool:
    """As `write_batch`, with a task that is called here."""
    table = open_table(where)
    if batch <= table.last_batch(QUERY):
        return False
    return table.commit(QUERY, batch, uploaded(table, Attempt(table.root, QUERY, batch)), FRAME)


def ids(where: Target) -> Counter[int]:
    found = open_table(where).read()
    return Counter() if found is None else Counter(found.column("id").to_pylist())


def expected(batches: int) -> Counter[int]:
    return Counter(range(batches * ROWS))


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_are_there_once_and_a_replay_is_skipped(address: str, catalog: str, kind: str) -> None:
    where = target(kind, f"plain-{kind}", catalog, "s3a" if kind == "delta" else "s3")
    assert [write(where, batch) for batch in (0, 1, 1, 2)] == [True, True, False, True]
    assert ids(where) == expected(3)


@pytest.mark.parametrize("kind", merged_tables.FORMATS)
def test_changes_are_merged_once(address: str, catalog: str, kind: str) -> None:
    where = Target(f"s3://{BUCKET}/merged-{kind}/events", kind, [], catalog if kind == "iceberg" else None)
    table = open_merged(where)
    assert merged_tables.merge(table, QUERY, 0, 0, 10).folded.inserted == 10
    deleted = merged_tables.changes(5, 12, kind="d", lsn=100, at=10)
    assert merged_tables.merge(table, QUERY, 1, 10, 17, deleted).folded.deleted == 5
    assert merged_tables.merge(open_merged(where), QUERY, 1, 10, 17, deleted).skipped
    assert merged_tables.rows(where) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", FORMATS)
def test_of_two_attempts_at_one_batch_one_counts(address: str, catalog: str, kind: str) -> None:
    """The second has looked before the first commits, and comes to its commit when the first is long done."""
    where = target(kind, f"two-{kind}", catalog)
    write(where, 0)
    slow, quick = open_table(where), open_table(where)
    assert slow.last_batch(QUERY) == 0
    late = uploaded(slow, Attempt(slow.root, QUERY, 1))
    assert quick.commit(QUERY, 1, uploaded(quick, Attempt(quick.root, QUERY, 1)), FRAME)
    assert write(where, 2)
    assert not slow.commit(QUERY, 1, late, FRAME)
    assert ids(where) == expected(3)


FAULTS: dict[str, str | int] = {
    "the reply is lost": LOSE_REPLY,
    "the request is lost": LOSE_REQUEST,
    "slow down": 503,
    "conflict": 409,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_every_put_fails_once_and_every_row_is_there_once(
    server: str, monkeypatch: pytest.MonkeyPatch, kind: str, fault: str
) -> None:
    where = target(kind, f"{fault.replace(' ', '-')}-{kind}", "")

    def judge(method: str, path: str, number: int) -> str | int:
        # A conflict is an answer to a conditional request; data files are written without conditions.
        due = method == "PUT" and number == 1 and (fault != "conflict" or "part-" not in path)
        return FAULTS[fault] if due else PASS

    with unsafe_way(server, judge) as way:
        use(monkeypatch, way)
        for batch in range(3):
            for _ in range(3):
                try:
                    write(where, batch)
                    break
                except Exception:  # The driver fails, and the next one runs the batch again.
                    continue
    use(monkeypatch, server)
    assert ids(where) == expected(3)


def test_an_object_is_created_once_even_if_the_reply_is_lost(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(method: str, path: str, number: int) -> str | int:
        return LOSE_REPLY if method == "PUT" and number == 1 else PASS

    with unsafe_way(server, judge) as way:
        use(monkeypatch, way)
        store = ObjectStore(Bucket(f"s3://{BUCKET}/created"), "_skidway")
        assert store.create("one", b"mine")
        assert not store.create("one", b"another's")
        assert store.read("one") == b"mine"
        assert store.read("two") is None
        store.replace("one", b"changed")
        store.replace("folder/three", b"3")
        assert (store.names(""), store.folders()) == (["one"], ["folder"])
        store.remove("one")
        store.remove("one")
        assert store.read("one") is None


def test_a_lease_in_an_object_store(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BEAT_S", 0.05)
    bucket = Bucket(f"s3://{BUCKET}/leased")
    first = hold("one driver", ObjectStore(bucket, "_skidway"))
    try:
        with pytest.raises(Busy):
            hold("another driver", ObjectStore(bucket, "_skidway"))
        first.check()
        first.release()
        second = hold("another driver", ObjectStore(bucket, "_skidway"))
        assert second.epoch == 2
    finally:
        keeping.release_all()


def test_what_no_batch_names_does_not_count(address: str) -> None:
    """The files of an attempt that died before its commit, or of a task that ran twice."""
    where = target("parquet", "orphans", "")
    table = open_table(where)
    uploaded(table, Attempt(table.root, QUERY, 0))
    write(where, 0)
    assert ids(where) == expected(1)


def test_rows_are_split_where_their_folders_change() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x", "x", None, None], "b": [1, 2, 2, 2], "c": [1, 2, 3, 4]})
    found = [(values, part.column("c").to_pylist()) for values, part in runs(batch, ["a", "b"])]
    assert found == [(("x", "1"), [1]), (("x", "2"), [2]), ((None, "2"), [3, 4])]
    assert escaped("red: 100%/0") == "red%3A 100%25%2F0"
    assert escaped(None) == "__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://lake/a/b/", "s3://lake/a/b"),
        ("s3a://lake/a", "s3://lake/a"),
        ("gs://lake/a", "gs://lake/a"),
        ("abfs://c@account.dfs.core.windows.net/a", "abfs://c@account.dfs.core.windows.net/a"),
        ("file:///lake/a", None),
        ("/lake/a", None),
    ],
)
def test_addresses_of_stores(path: str, url: str | None) -> None:
    bucket = bucket_of(path, {})
    assert (bucket and bucket.url) == url


@pytest.mark.parametrize("path", ["s3://lake", "hdfs://x/y", "s3://lake/../a", "s3://lake/a?b", "s3://lake/a\nb"])
def test_what_is_no_address_is_refused(path: str) -> None:
    with pytest.raises(BadStore):
        bucket_of(path, {})


def test_credentials_are_no_options_and_in_no_message(
    address: str, monkeypatch: pytest.MonkeyPatch, catalog: str
) -> None:
    with pytest.raises(BadTable, match="credentials are not options") as refused:
        open_table(Target("s3://lake/a", store_options={"secret_access_key": "hush-hush"}))
    assert "hush-hush" not in str(refused.value)
    with pytest.raises(BadTable, match="needs a catalog"):
        open_table(Target("s3://lake/a", "iceberg"))
    store = ObjectStore(Bucket("s3://nowhere-at-all/a"), "_skidway")
    with pytest.raises(OSError, match="could not create") as failed:
        store.create("one", b"")
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(failed.value)
