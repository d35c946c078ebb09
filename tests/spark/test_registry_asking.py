"""How registries are asked: over HTTP, in folders, and what is remembered."""

import base64
import json
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from schema_registry import SchemaRegistry, serving

from skidway.spark.registry import decoding, http, schemas
from skidway.spark.registry.decoding import Decoder, decoder_of
from skidway.spark.registry.folder import FolderRegistry
from skidway.spark.registry.frames import VALUE_HEADER
from skidway.spark.registry.http import HttpRegistry
from skidway.spark.registry.opening import BadRegistry, open_registry
from skidway.spark.registry.schemas import BadSchema, RegistryFailed, UnknownSchema

SUBJECT = "orders-value"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.0)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as registry:
        yield registry


def by_hand(number: int, payload: bytes = b"\x02") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def reasons(decoder: Decoder, *values: bytes | None, headers: list[bytes | None] | None = None) -> list[str | None]:
    return [reason for part in decoder.begin().decode(values, headers) for reason in part.reasons]


def test_a_schema_is_asked_for_once_in_a_process(registry: SchemaRegistry) -> None:
    number = registry.add(SUBJECT, ORDER)
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    for _ in range(3):
        assert reasons(pickle.loads(pickle.dumps(decoder)), *[by_hand(number)] * 5) == [None] * 5
    assert registry.asked == [f"/subjects/{SUBJECT}/versions/latest", f"/schemas/ids/{number}"]


def test_an_unknown_id_is_asked_for_once_by_a_task_and_again_by_the_next(registry: SchemaRegistry) -> None:
    registry.add(SUBJECT, ORDER)
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    unknown = ["the registry does not know the id of its schema"]
    assert reasons(decoder, *[by_hand(2)] * 3) == unknown * 3
    registry.add("other", {**ORDER, "doc": "new"})
    assert reasons(decoder, by_hand(2)) == [None]
    assert registry.asked.count("/schemas/ids/2") == 2


def test_ids_that_nobody_gave_are_not_asked_for_without_end(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = registry.add(SUBJECT, ORDER)
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    monkeypatch.setattr(decoding, "UNKNOWN_MAX", 10)
    assert reasons(decoder, by_hand(number)) == [None]
    found = reasons(decoder, *(by_hand(n) for n in range(100, 200)), by_hand(number), by_hand(100))
    assert found[:10] == ["the registry does not know the id of its schema"] * 10
    assert set(found[10:100]) == {decoding.TOO_MANY_IDS}
    assert found[100:] == [None, "the registry does not know the id of its schema"]
    assert len([path for path in registry.asked if path.startswith("/schemas/ids/1")]) <= 11


def test_what_is_remembered_is_bounded(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "READERS_MAX", 2)
    monkeypatch.setattr(decoding, "_remembered", {})
    numbers = [registry.add(SUBJECT, {**ORDER, "doc": str(n)}) for n in range(5)]
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    assert reasons(decoder, *map(by_hand, numbers)) == [None] * 5
    assert len(decoding._remembered) == 2


def test_a_registry_that_fails_for_a_moment_is_asked_again(registry: SchemaRegistry) -> None:
    number = registry.add(SUBJECT, ORDER)
    registry.fail = [503, 429]
    assert HttpRegistry(registry.url).by_id(number).schema == json.dumps(ORDER)
    assert len(registry.asked) == 3


def test_a_registry_that_fails_is_an_error_and_rejects_nothing(registry: SchemaRegistry) -> None:
    number = registry.add(SUBJECT, ORDER)
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    registry.fail = [500] * http.ATTEMPTS
    with pytest.raises(RegistryFailed, match="cannot be asked: it answers 500"):
        reasons(decoder, by_hand(number))
    assert reasons(decoder, by_hand(number)) == [None]


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(RegistryFailed, match="cannot be asked"):
            HttpRegistry(f"http://127.0.0.1:{taken.getsockname()[1]}").by_id(1)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"<html>", "cannot be understood"),
        (b"{}", "cannot be understood"),
        (b'{"schema": 5}', "cannot be understood"),
        (b"[" * 100_000, "cannot be understood"),
        (json.dumps({"schema": "x" * (schemas.SCHEMA_BYTES_MAX + 1)}).encode(), "more than 1048576 bytes"),
        (b" " * (http.ANSWER_BYTES_MAX + 1), "answers more than"),
    ],
)
def test_answers_that_are_none(registry: SchemaRegistry, answer: bytes, told: str) -> None:
    registry.add(SUBJECT, ORDER)
    registry.answer = answer
    with pytest.raises(RegistryFailed, match=told):
        HttpRegistry(registry.url).by_id(1)


def test_a_wrong_address_is_not_taken_for_an_unknown_schema(registry: SchemaRegistry) -> None:
    with pytest.raises(RegistryFailed, match="is the address right"):
        HttpRegistry(f"{registry.url}/elsewhere").by_id(1)
    with pytest.raises(UnknownSchema):
        HttpRegistry(registry.url).by_id(1)


def test_credentials_come_from_the_environment_and_are_shown_nowhere(registry: SchemaRegistry) -> None:
    registry.add(SUBJECT, ORDER)
    registry.wanted = "Basic " + base64.b64encode(b"ann:hush-hush").decode()
    known = {"SKIDWAY_REGISTRY_USER": "ann", "SKIDWAY_REGISTRY_PASSWORD": "hush-hush"}
    decoder = decoder_of(open_registry(registry.url, known), SUBJECT)
    assert reasons(decoder, by_hand(1)) == [None]
    shown = repr(decoder) + str(decoder.registry)
    assert "hush" not in shown
    assert registry.wanted not in shown
    registry.wanted = "Bearer hush"
    assert open_registry(registry.url, {"SKIDWAY_REGISTRY_TOKEN": "hush"}).by_id(1).schema == json.dumps(ORDER)
    with pytest.raises(RegistryFailed, match=r"refuses the credentials \(401\): set SKIDWAY_REGISTRY_USER") as refused:
        open_registry(registry.url, known).by_id(1)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "environment", "told"),
    [
        ("http://ann:secret@host:8081", {}, "credentials do not go into"),
        ("ftp://host", {}, "not the address of a schema registry"),
        ("http://", {}, "not the address of a schema registry"),
        ("http://host:99999", {}, "not a URL"),
        ("file://host/folder", {}, "names another machine"),
        ("no/such/folder", {}, "there is no folder"),
        ("http://host", {"SKIDWAY_REGISTRY_TOKEN": "a", "SKIDWAY_REGISTRY_USER": "b"}, "both set"),
        ("http://host", {"SKIDWAY_REGISTRY_TOKEN": "a\nHost: b"}, "line end"),
    ],
)
def test_addresses_that_are_none(place: str, environment: dict[str, str], told: str) -> None:
    with pytest.raises(BadRegistry, match=told) as refused:
        open_registry(place, environment)
    assert "secret" not in str(refused.value)


def test_a_folder_is_a_registry(tmp_path: Path) -> None:
    subject = tmp_path / SUBJECT
    subject.mkdir()
    (tmp_path / "a%2Fuser").mkdir()
    user = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
    (tmp_path / "a%2Fuser" / "1-3.avsc").write_text(json.dumps(user))
    (subject / "1-1.avsc").write_text(json.dumps(ORDER))
    newer = {
        **ORDER,
        "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": ["null", "User"], "default": None}],
    }
    (subject / "10-2.avsc").write_text(json.dumps(newer))
    pointer = [{"name": "User", "subject": "a/user", "version": 1}]
    (subject / "10-2.references.json").write_text(json.dumps(pointer))
    for place in (str(tmp_path), tmp_path.as_uri()):
        decoder = decoder_of(open_registry(place), SUBJECT)
        (found,) = decoder.begin().decode([by_hand(1), by_hand(2, b"\x04\x02\x06ann"), by_hand(4)])
        assert found.values.to_pylist() == [{"id": 1, "by": None}, {"id": 2, "by": {"name": "ann"}}, None]


def test_a_folder_is_not_left_by_the_names_of_subjects(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "1-1.avsc").write_text(json.dumps(ORDER))
    registry = FolderRegistry(str(tmp_path / "inside"))
    for subject in ("..", ".", "../../etc", ""):
        with pytest.raises(UnknownSchema):
            registry.by_version(subject, "1")


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    (tmp_path / SUBJECT).mkdir()
    (tmp_path / SUBJECT / "1-1.avsc").write_bytes(b"\xff")
    with pytest.raises(RegistryFailed, match="cannot be read"):
        FolderRegistry(str(tmp_path)).by_id(1)
    (tmp_path / SUBJECT / "1-1.avsc").write_bytes(b" " * (schemas.SCHEMA_BYTES_MAX + 1))
    with pytest.raises(RegistryFailed, match="more than 1048576 bytes"):
        FolderRegistry(str(tmp_path)).by_id(1)


def test_references_without_end_are_refused(registry: SchemaRegistry) -> None:
    around = [{"name": "b", "subject": SUBJECT, "version": 1}]
    registry.add(SUBJECT, ORDER, references=around)
    with pytest.raises(BadSchema, match="refers to itself"):
        decoder_of(HttpRegistry(registry.url), SUBJECT)
    many: list[dict[str, Any]] = [{"name": f"n{n}", "subject": "many", "version": n + 1} for n in range(200)]
    for n in range(200):
        registry.add("many", {**ORDER, "name": f"N{n}"})
    registry.add("all", ORDER, references=many)
    with pytest.raises(BadSchema, match="more than 100 others"):
        decoder_of(HttpRegistry(registry.url), "all")
    with pytest.raises(BadSchema, match="has no subject none"):
        decoder_of(HttpRegistry(registry.url), "none")


def test_the_id_may_be_in_a_header_by_number_or_guid(registry: SchemaRegistry) -> None:
    from uuid import UUID

    number = registry.add(SUBJECT, ORDER)
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    guid = UUID(registry.guid(number)).bytes
    headers = [b"\1" + guid, by_hand(number, b""), b"\1" + bytes(16), b"\1short", b"", b"\7", None]
    values = [b"\x02"] * 6 + [by_hand(number)]
    bad = f"the header {VALUE_HEADER} is not that of a schema registry"
    assert reasons(decoder, *values, headers=headers) == [
        None, None, "the registry does not know the id of its schema", bad, bad, bad, None
    ]  # fmt: skip


def test_large_batches_are_decoded_in_parts(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    number = registry.add(SUBJECT, ORDER)
    monkeypatch.setattr(decoding, "CHUNK_BYTES", 30)
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    parts = list(decoder.begin().decode([by_hand(number)] * 11))
    assert [len(part.reasons) for part in parts] == [5, 5, 1]
    assert list(decoder.begin().decode([])) == []
