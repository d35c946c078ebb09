"""`skidway cluster features` against a real broker."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from skidway.cli.commands.cluster import app
from skidway.testing import Broker

ALL = {"metadata.version": 25, "share.version": 2, "transaction.version": 2}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


@pytest.fixture(autouse=True)
def environment(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["features", *words])
    assert result.exit_code == code, result.output
    return result


def levels() -> dict[str, int]:
    return {each["name"]: each["level"] for each in json.loads(run("--json").stdout)}


def test_levels_are_shown_lowered_and_raised() -> None:
    assert run().stdout.splitlines() == [
        "FEATURE              LEVEL  SUPPORTED",
        "metadata.version     25     7 to 25",
        "share.version        2      0 to 2",
        "transaction.version  2      0 to 2",
    ]
    assert run("--downgrade", "transaction.version=1", "--dry-run").stdout == (
        "transaction.version could be at level 1\n"
    )
    assert levels() == ALL
    assert run("--downgrade", "transaction.version=0").stdout == "transaction.version is at level 0\n"
    assert "transaction.version  -      0 to 2" in run().stdout
    assert json.loads(run("--json").stdout)[2] == {"name": "transaction.version", "level": 0, "low": 0, "high": 2}
    run("--upgrade", "transaction.version=2", "--upgrade", "metadata.version=25")
    assert levels() == ALL


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--upgrade", "transaction.version=3"], "supports levels 0 to 2 only"),
        (["--upgrade", "transaction.version=1"], "the level is 2, and an upgrade does not lower it"),
        (["--downgrade", "metadata.version=7"], "might delete metadata"),
        (["--upgrade", "no.such.version=1"], "does not support this feature"),
    ],
    ids=str,
)
def test_a_refusal_says_why(words: list[str], why: str) -> None:
    refused = run(*words, code=1)
    assert refused.stderr.startswith("error: cannot ")
    assert why in refused.stderr
    assert levels() == ALL


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--upgrade", "transaction.version"], "'transaction.version' is not a feature and a level"),
        (["--upgrade", "transaction.version=x"], "expected for example transaction.version=2"),
        (["--upgrade", "=1"], "'=1' is not a feature and a level"),
        (["--upgrade", "transaction.version=40000"], "is not a feature and a level"),
        (["--upgrade", "a=1", "--upgrade", "a=2"], "a has two levels; name it once"),
        (["--upgrade", "a=1", "--downgrade", "b=2"], "make one after the other"),
        (["--dry-run"], "--dry-run needs a change"),
        (["--upgrade", "a=1", "--json"], "leave it out to change one"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_a_usage_error(words: list[str], why: str) -> None:
    assert why in run(*words, code=2).stderr
