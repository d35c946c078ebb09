"""merge: the table is what the source is, over batches, restarts and columns that come, in each format."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pipeline_topics import new_topic, put
from pyspark.errors import StreamingQueryException
from queries import to_the_end

from skidway.spark.lake import Target, open_table
from skidway.spark.lake.merging import open_merged
from skidway.spark.pipelines.merge import Merge, MergeOptions
from skidway.spark.pipelines.options import ONCE, BadPipeline

FORMATS = ("delta", "iceberg")


def options_of(bootstrap: str, topic: str, folder: Path, kind: str, **more: Any) -> MergeOptions:
    told: dict[str, Any] = {"schema": "id bigint, name string", **more}
    return MergeOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(folder / "table"),
        format=kind,
        checkpoint=str(folder / "checkpoint"),
        **told,
    )


def run(spark: Any, options: MergeOptions) -> Merge:
    merge = Merge(options)
    to_the_end(lambda: merge.start(spark, ONCE))
    return merge


def rows(options: MergeOptions) -> list[dict[str, Any]]:
    found = open_merged(options.target()).read()
    return [] if found is None else sorted(found.to_pylist(), key=lambda row: str(row["__key"]))


def living(options: MergeOptions) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith("__")}
        for row in rows(options)
        if not row["__deleted"]
    ]


def change(op: str, number: int, lsn: int, **fields: Any) -> tuple[bytes, bytes]:
    row = {"id": number, **fields}
    before, after = (row, None) if op == "d" else (None, row)
    told = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
    return json.dumps({"id": number}).encode(), json.dumps(told).encode()


def with_schema(record: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    key, value = (b'{"schema": {}, "payload": %s}' % part for part in record)
    return key, value


@pytest.mark.parametrize("kind", FORMATS)
def test_changes_become_rows_and_what_is_none_is_set_aside(
    spark: Any, bootstrap: str, tmp_path: Path, kind: str
) -> None:
    topic = new_topic(bootstrap, "changes")
    options = options_of(bootstrap, topic, tmp_path, kind)
    put(bootstrap, topic, [change("r", 1, 1, name="ann"), with_schema(change("c", 2, 2, name="bob"))])
    assert run(spark, options).counts() == {"inserted": 2}
    assert living(options) == [{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}]

    put(
        bootstrap,
        topic,
        [
            change("u", 1, 9, name="anna"),
            change("u", 1, 8, name="older"),
            change("d", 2, 10),
            (b'{"id": 2}', None),
            change("u", 2, 3, name="older"),
            (None, change("c", 3, 11, name="nobody")[1]),
            (b'{"id": 4}', b'{"id": 4}'),
            change("c", 5, 12, id="five"),
            b"no JSON",
        ],
    )
    merge = run(spark, options)
    assert living(options) == [{"id": 1, "name": "anna"}]
    assert merge.counts() == {
        "updated": 1,
        "deleted": 1,
        "older": 2,
        "rejected": 4,
        "rejected (a field does not have the type the schema gives it)": 1,
        "rejected (the record has no key)": 1,
        "rejected (the value is not a JSON object)": 1,
        "rejected (the value is not an envelope with op, source, before and after)": 1,
    }
    assert merge.written.rows == 2
    assert merge.written.files >= 1
    assert merge.written.bytes > 0
    assert rows(options)[1] == {
        "__key": '{"id":2}',
        "__deleted": True,
        "__position": '{"lsn":10}',
        "id": None,
        "name": None,
    }
    rejected = open_table(options.rejected_target()).read()
    assert rejected is not None
    assert {bytes(value) for value in rejected.column("value").to_pylist()} >= {b"no JSON", b'{"id": 4}'}
    assert set(rejected.column_names) == {
        "key", "value", "headers", "topic", "partition", "offset", "timestamp", "reason", "rejected_at",
    }  # fmt: skip

    # The row of 2 comes back, by a change that is newer than its deletion.
    put(bootstrap, topic, [change("c", 2, 20, name="bert")])
    assert run(spark, options).counts() == {"inserted": 1}
    assert living(options) == [{"id": 1, "name": "anna"}, {"id": 2, "name": "bert"}]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_checkpoint_that_is_lost_costs_nothing(spark: Any, bootstrap: str, tmp_path: Path, kind: str) -> None:
    topic = new_topic(bootstrap, "lost")
    options = options_of(bootstrap, topic, tmp_path, kind)
    put(bootstrap, topic, [change("c", number, number + 1, name="x") for number in range(20)])
    run(spark, options)
    before = rows(options)
    shutil.rmtree(options.folder("merge"))
    put(bootstrap, topic, [change("d", number, 100 + number) for number in range(5)])
    assert run(spark, options).counts() == {"deleted": 5}
    kept = {row["__key"]: row for row in rows(options)}
    assert len(kept) == 20
    assert [kept[row["__key"]] for row in before if row["id"] >= 5] == [row for row in before if row["id"] >= 5]
    assert {row["id"] for row in living(options)} == set(range(5, 20))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_crash_behind_either_table_changes_nothing(
    spark: Any, bootstrap: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the rejects of a batch are committed and its changes are not, then both are and Spark does not know."""
    topic = new_topic(bootstrap, "crash")
    options = options_of(bootstrap, topic, tmp_path, kind)
    put(bootstrap, topic, [change("c", n, n + 1, name=str(n)) if n % 5 else b"broken" for n in range(50)])
    tables = type(open_merged(options.target())), type(open_table(options.rejected_target()))
    crashes: list[str] = []

    def crashing(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            committed = real(*arguments, **more)
            if name not in crashes:
                crashes.append(name)
                raise OSError("power lost")
            return committed

        monkeypatch.setattr(owner, name, call)

    crashing(tables[0], "merge")
    crashing(tables[1], "commit")
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="power lost"):
            run(spark, options)
    assert crashes == ["commit", "merge"]
    assert run(spark, options).counts() == {}
    assert {row["id"] for row in living(options)} == {n for n in range(50) if n % 5}
    rejected = open_table(options.rejected_target()).read()
    assert rejected is not None
    assert rejected.num_rows == 10


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_come_and_get_wider_between_runs(spark: Any, bootstrap: str, tmp_path: Path, kind: str) -> None:
    topic = new_topic(bootstrap, "wider", 1)
    options = options_of(bootstrap, topic, tmp_path, kind, schema="id int, at struct<city: string>")
    put(bootstrap, topic, [change("c", n, n + 1, at={"city": "Oslo"}) for n in range(3)])
    run(spark, options)
    wider = replace(options, schema="id bigint, at struct<city: string, zip: string>, `order` double, when timestamp")
    more = {"at": {"city": "Rome", "zip": "00100"}, "order": 1.5, "when": "2026-01-31T12:00:00Z"}
    put(bootstrap, topic, [change("u", 1, 10, **more), change("c", 2**40, 11, **more)])
    run(spark, wider)
    found = {row["id"]: row for row in living(wider)}
    assert found.keys() == {0, 1, 2, 2**40}
    assert found[0] == {"id": 0, "at": {"city": "Oslo", "zip": None}, "order": None, "when": None}
    assert found[1]["at"] == found[2**40]["at"] == {"city": "Rome", "zip": "00100"}
    assert found[1]["order"] == 1.5
    assert found[1]["when"].isoformat() == "2026-01-31T12:00:00+00:00"
    # A field that is left out is null in rows that change from then on.
    put(bootstrap, topic, [change("u", 1, 20, at={"city": "Bonn"})])
    run(spark, replace(wider, schema="id bigint, at struct<city: string>"))
    found = {row["id"]: row for row in living(wider)}
    assert found[1] == {"id": 1, "at": {"city": "Bonn", "zip": None}, "order": None, "when": None}
    assert found[2**40]["order"] == 1.5
    put(bootstrap, topic, [change("u", 1, 30)])
    with pytest.raises(StreamingQueryException, match="cannot take these rows: id is bigint"):
        run(spark, replace(wider, schema="id string"))


def test_rows_by_their_own_fields_hashed(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "fields", 1)
    salt = tmp_path / "salt"
    salt.write_text("0123456789abcdef")
    options = options_of(
        bootstrap,
        topic,
        tmp_path,
        "delta",
        key=["id"],
        order_by="ts_ms",
        hash=["key", "name"],
        salt_file=str(salt),
    )

    def timed(op: str, before: Any, after: Any, ts_ms: int) -> tuple[None, bytes]:
        return None, json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": ts_ms}}).encode()

    put(bootstrap, topic, [timed("c", None, {"id": 1, "name": "ann"}, 5), timed("c", None, {"id": 7, "name": "x"}, 5)])
    # The second moves to another key.
    put(bootstrap, topic, [timed("u", {"id": 7}, {"id": 8, "name": "y"}, 6), timed("c", None, {"name": "z"}, 6)])
    merge = run(spark, options)
    assert merge.counts() == {"inserted": 2, "rejected": 1, "rejected (the record has no key)": 1}
    found = living(options)
    assert {row["id"] for row in found} == {1, 8}
    assert {len(row["name"]) for row in found} == {64}
    assert {len(row["__key"]) for row in rows(options)} == {64}
    rejected = open_table(options.rejected_target()).read()
    assert rejected is not None
    assert rejected.column("value").to_pylist() == [None]


def test_a_table_that_is_none_of_a_merge_is_refused(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "foreign", 1)
    put(bootstrap, topic, [change("c", 1, 1, name="ann")])
    options = options_of(bootstrap, topic, tmp_path, "delta")
    write_deltalake(options.path, pa.table({"id": [1], "name": ["bob"]}))
    with pytest.raises(StreamingQueryException, match="no merge wrote it"):
        run(spark, options)


def test_positions_of_two_kinds_stop_the_pipeline(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "kinds", 1)
    options = options_of(bootstrap, topic, tmp_path, "delta")
    put(bootstrap, topic, [change("c", 1, 1, name="ann")])
    run(spark, options)
    other = {"op": "u", "before": None, "after": {"id": 1, "name": "bob"}, "source": {"ts_ms": 5}}
    put(bootstrap, topic, [(b'{"id": 1}', other)])
    with pytest.raises(StreamingQueryException, match="has its source position by ts_ms, and its key has one by lsn"):
        run(spark, options)
    merge = run(spark, replace(options, order_by="lsn"))
    assert merge.counts() == {"rejected": 1, "rejected (the source has no lsn)": 1}


def test_options_that_make_no_sense_are_told(tmp_path: Path) -> None:
    told: dict[str, Any] = {"topic": ["t"], "path": str(tmp_path / "x"), "schema": "id int, name string"}
    for more, message in (
        ({"format": "parquet"}, "format must be delta or iceberg, not 'parquet'"),
        ({"key": ["nr"]}, "key: there is no field nr in the schema; its fields are id, name"),
        ({"schema": "__Key string"}, "a field cannot be called __Key"),
        ({"order_by": ","}, "order_by must be"),
        ({"schema": "`a``b` int"}, "deltalake merges no column whose name has a ` in it: a`b"),
    ):
        with pytest.raises(BadPipeline, match=message):
            MergeOptions(**{**told, **more})
    with pytest.raises(BadPipeline, match="the column __key would still say what the key is: add --hash key"):
        Merge(MergeOptions(**told, drop=["name"]))
    with pytest.raises(BadPipeline, match="the key can be hashed, and not dropped or truncated"):
        Merge(MergeOptions(**told, drop=["key"]))
    assert Target(str(tmp_path / "x"), "delta") == MergeOptions(**told).target()
