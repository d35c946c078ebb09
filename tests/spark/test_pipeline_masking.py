"""Fields that are hashed, dropped or truncated: told wrong, in arrays, in a table and its rejects."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipeline_topics import new_topic, put
from pyspark.sql.types import ArrayType, StructType
from queries import to_the_end

from skidway.spark.lake.evolution import arrow_of
from skidway.spark.pipelines.archive import Archive, ArchiveOptions
from skidway.spark.pipelines.options import ONCE, BadPipeline
from skidway.spark.pipelines.values.masking import mask_array, mask_frame, masked_type
from skidway.spark.pipelines.values.masks import SALT_VARIABLE, Masks, masks_of, read_salt
from skidway.spark.pipelines.values.schemas import fields_of

SALT = b"0123456789abcdef-salt"
SCHEMA = (
    "id bigint, user struct<email: string, city: string NOT NULL COMMENT 'a, b > c'>, `zip code` string,"
    " price decimal(10, 2), items array<struct<sku string, card string>>, tags map<string, array<int>>"
)


def masks(hashed: str = "", dropped: str = "", truncated: str = "", schema: str | None = SCHEMA) -> Masks:
    fields = None if schema is None else fields_of(schema)
    return masks_of(hashed.split(), dropped.split(), truncated.split(), fields, SALT)


def digits(text: str) -> str:
    return hashlib.sha256(SALT + text.encode()).hexdigest()


def test_the_fields_of_a_schema_are_read_without_spark() -> None:
    read = fields_of(SCHEMA)
    assert list(read.fields) == ["id", "user", "zip code", "price", "items", "tags"]
    assert list(read.fields["user"].fields) == ["email", "city"]
    assert list(read.fields["items"].of_elements.fields) == ["sku", "card"]
    assert [one.name for one in read.fields["tags"].inner] == ["string", "array"]


@pytest.mark.parametrize("schema", ["", "a", "a int,", "a struct<b", "a array<", "a int) b", "a map<int>", "a 'x'"])
def test_what_is_no_schema_is_refused(schema: str) -> None:
    with pytest.raises(BadPipeline, match="cannot be read"):
        fields_of(schema)


@pytest.mark.parametrize(
    ("told", "refusal"),
    [
        ({"dropped": "user.phone"}, r"no field user.phone to mask; the fields of user are: email, city"),
        ({"hashed": "name"}, "no field name to mask; the fields of the value are: id, user"),
        ({"hashed": "id.x"}, "the fields of id are: none, it is not a struct"),
        ({"dropped": "user user.email"}, "user.email is masked twice, or lies in a field that is masked"),
        ({"hashed": "id", "dropped": "id"}, "id is masked twice"),
        ({"hashed": "user"}, "user is struct; texts, whole numbers and binary can be hashed"),
        ({"hashed": "price"}, "price is decimal; texts"),
        ({"truncated": "id=3"}, "id is bigint; texts and binary can be truncated"),
        ({"truncated": "user.city"}, "is not FIELD=LENGTH"),
        ({"truncated": "user.city=0"}, "is not FIELD=LENGTH"),
        ({"dropped": "user.email user.city"}, "all fields of user would be dropped"),
        ({"hashed": "headers"}, "headers can be dropped"),
        ({"dropped": "id", "schema": None}, "to mask id, give a schema"),
    ],
)
def test_what_cannot_be_masked_is_refused(told: dict[str, Any], refusal: str) -> None:
    with pytest.raises(BadPipeline, match=refusal):
        masks(**told)


def test_a_pipeline_refuses_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def archive(**more: Any) -> Archive:
        return Archive(ArchiveOptions(topic=["t"], path=str(tmp_path / "table"), schema=SCHEMA, **more))

    with pytest.raises(BadPipeline, match="no field mail to mask"):
        archive(drop=["mail"])
    with pytest.raises(BadPipeline, match="city is dropped, so that the table cannot be partitioned by it"):
        archive(drop=["user.city"], partition_by=["user.city"])
    monkeypatch.delenv(SALT_VARIABLE, raising=False)
    with pytest.raises(BadPipeline, match=f"set the variable {SALT_VARIABLE}, or name a file"):
        archive(hash=["id"])
    assert not (tmp_path / "table").exists()


def test_a_salt_comes_from_a_file_or_the_environment_and_is_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "salt"
    file.write_bytes(SALT + b"\n")
    assert read_salt(str(file), {SALT_VARIABLE: "another one, of 16 bytes"}) == SALT
    assert read_salt(None, {SALT_VARIABLE: SALT.decode()}) == SALT
    assert read_salt(None, {}) == b""
    with pytest.raises(BadPipeline, match=r"a salt of 5 bytes; it must have 16 to") as refused:
        read_salt(None, {SALT_VARIABLE: "short"})
    assert "short" not in str(refused.value)
    with pytest.raises(BadPipeline, match="No such file"):
        read_salt(str(tmp_path / "none"), {})
    assert SALT.decode() not in repr(masks(hashed="id"))


def test_arrays_are_masked_to_their_depth_and_null_stays_null() -> None:
    kind = StructType().add("id", "long").add("user", StructType().add("email", "string").add("city", "string"))
    items = StructType().add("sku", "string").add("card", "string")
    kind = kind.add("items", ArrayType(items))
    rows: list[Any] = [
        {"id": 7, "user": {"email": "ann@x", "city": "Århus"}, "items": [{"sku": "a", "card": "1234 5678"}, None]},
        None,
        {"id": None, "user": None, "items": []},
        {"id": -1, "user": {"email": None, "city": "Oslo"}, "items": None},
    ]
    array = pa.array(rows, pa.struct(arrow_of(kind)))
    rules = masks(hashed="id user.email items.sku", truncated="user.city=3 items.card=4").value
    expected: list[Any] = [
        {
            "id": digits("7"),
            "user": {"email": digits("ann@x"), "city": "Årh"},
            "items": [{"sku": digits("a"), "card": "1234"}, None],
        },
        None,
        {"id": None, "user": None, "items": []},
        {"id": digits("-1"), "user": {"email": None, "city": "Osl"}, "items": None},
    ]
    assert mask_array(array, rules, SALT).to_pylist() == expected
    for begin in range(len(rows)):
        assert mask_array(array.slice(begin, 2), rules, SALT).to_pylist() == expected[begin : begin + 2]
    dropped = masks(dropped="user items.card").value
    assert mask_array(array, dropped, SALT).to_pylist()[0] == {"id": 7, "items": [{"sku": "a"}, None]}
    for told in (rules, dropped):
        masked = masked_type(kind, told)
        assert isinstance(masked, StructType)
        assert mask_array(array, told, SALT).type == pa.struct(arrow_of(masked))


def test_keys_are_masked_as_bytes() -> None:
    keys = pa.array([b"ann", None, b"\xff\x00"], pa.binary())
    rule = masks(hashed="key").record["key"]
    other = hashlib.sha256(SALT + b"\xff\x00").hexdigest().encode()
    assert mask_array(keys, rule, SALT).to_pylist() == [digits("ann").encode(), None, other]
    assert mask_array(keys, masks(truncated="key=2").record["key"], SALT).to_pylist() == [b"an", None, b"\xff\x00"]
    assert mask_array(keys, masks(dropped="key").record["key"], SALT).to_pylist() == [None] * 3
    assert masks(dropped="value.id").value.keys() == {"id"}


def test_an_archive_has_what_it_may_have_and_nothing_else(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "private", 1)
    ann = {"user": {"email": "ann@example.com", "phone": "555-0101"}, "zip": "12345", "amount": 3}
    bad = {"user": {"email": "bob@example.com", "phone": "555-0102"}, "zip": "6", "amount": -3}
    put(bootstrap, topic, [(b"ann@example.com", ann), (b"bob@example.com", bad)], headers=(("ip", b"192.0.2.7"),))
    (tmp_path / "salt").write_bytes(SALT)
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "lake" / "table"),
        format="delta",
        checkpoint=str(tmp_path / "lake" / "checkpoint"),
        schema="user struct<email: string, phone: string>, zip string, amount int",
        expect=["amount > 0 AND user.email LIKE '%@%'"],
        partition_by=["user.email"],
        hash=["key", "user.email"],
        drop=["user.phone", "headers"],
        truncate=["zip=3"],
        salt_file=str(tmp_path / "salt"),
    )
    archive = Archive(options)
    to_the_end(lambda: archive.start(spark, ONCE))
    from deltalake import DeltaTable

    [row] = DeltaTable(options.path).to_pyarrow_table().to_pylist()
    hashed = digits("ann@example.com")
    assert row["value"] == {"user": {"email": hashed}, "zip": "123", "amount": 3}
    assert (row["key"], row["email"], row["headers"]) == (hashed.encode(), hashed, None)
    [rejected] = DeltaTable(f"{options.path}-rejected").to_pyarrow_table().to_pylist()
    assert (rejected["key"], rejected["value"]) == (digits("bob@example.com").encode(), None)
    assert rejected["reason"].startswith("not true: amount > 0")
    secrets = (SALT, b"@example.com", b"555-01", b"192.0.2.7")
    for path in (tmp_path / "lake").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not any(one in content or one.decode() in path.name for one in secrets), path
    batch = spark.createDataFrame([(b"k", {"a": "x"})], "key binary, value struct<a: string>")
    frame = mask_frame(batch, masks(hashed="key a", schema="a string"))
    plan = frame._jdf.queryExecution().toString()
    assert "masked(" in plan
    assert SALT.decode() not in plan
    assert frame.collect()[0].asDict(recursive=True) == {"key": digits("k").encode(), "value": {"a": digits("x")}}
