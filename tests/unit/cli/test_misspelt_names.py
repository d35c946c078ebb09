"""A topic or a group that does not exist: every command that takes one says which was probably meant."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster, NoSuchTopic
from skidway.blocking_client.groups import Groups
from skidway.cli.help.completion import whole_app
from skidway.cli.help.help_pages import command_of
from skidway.cli.help.misspelt import closest
from skidway.cli.help.suggestions import with_suggestion

TOPIC = {
    "topic describe": "{x}",
    "topic alter": "{x} -c flush=os",
    "topic grow": "{x} 5",
    "topic delete": "{x} --yes",
    "topic trim": "{x} --before end --yes",
    "topic reassign": "{x} --to 1",
    "produce": "{x}",
    "consume": "{x}",
    "dlq show": "{x}",
    "dlq redrive": "{x}",
    "dlq replay": "{x}",
    "group reset": "{group} --to 0 --topic {x}",
    "group forget": "{group} --topic {x}",
    "transaction abort": "--topic {x} --partition 0 --yes",
    "transaction hanging": "--topic {x}",
    "cluster elect-leaders": "--topic {x}",
    "bench produce": "--topic {x} -n 1",
    "bench consume": "--topic {x} -n 1",
    "bench latency": "--topic {x} --seconds 1",
}
MORE = (
    ("topic reassign", "{x} --status"),
    ("topic reassign", "{x} --cancel"),
    ("consume", "{x} --group {group}"),
    ("consume", "{topic} {x}"),
    ("topic delete", "{topic} {x} --yes"),
)
NEW_NAMES = {"topic create", "pipeline init"}
"""They name what is not there yet."""
GROUP = {
    "group describe": "{x}",
    "group reset": "{x} --to 0",
    "group forget": "{x} --topic {topic}",
    "group delete": "{x} --yes",
}


@pytest.fixture
def names(bootstrap: str, name: str) -> dict[str, str]:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name)
        Groups(cluster).commit(f"{name}-group", {(name, 0): 0})
    return {"topic": name, "group": f"{name}-group"}


@pytest.fixture(scope="module")
def whole() -> Any:
    return command_of(whole_app())


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if not inner:
        yield " ".join(words), command
        return
    for name, one in inner.items():
        yield from leaves(one, (*words, name))


def taking(whole: Any, placeholder: str) -> set[str]:
    found = set()
    for words, command in leaves(whole):
        parameters = command.get_params(command.context_class(command))
        if any(one.metavar == placeholder and "--to" not in one.opts for one in parameters):
            found.add(words)
    return found


def said(whole: Any, command: str, words: str, bootstrap: str) -> str:
    ended = CliRunner().invoke(whole_app(), [*command.split(), *words.split(), "-b", bootstrap], input="a\n")
    assert ended.exit_code == 1, ended.output
    assert len(ended.stderr.splitlines()) == 1
    return ended.stderr


def test_no_command_is_forgotten(whole: Any) -> None:
    assert taking(whole, "TOPIC") - NEW_NAMES == set(TOPIC)
    begin_new_ones = {"consume", "group alter"}
    assert taking(whole, "GROUP") - begin_new_ones == set(GROUP)


@pytest.mark.parametrize(("command", "words"), [*TOPIC.items(), *MORE])
def test_a_misspelt_topic(whole: Any, bootstrap: str, names: dict[str, str], command: str, words: str) -> None:
    misspelt = f"{names['topic']}x"
    text = said(whole, command, words.format(x=misspelt, **names), bootstrap)
    assert misspelt in text
    assert f"did you mean {names['topic']}?" in text


@pytest.mark.parametrize(("command", "words"), GROUP.items())
def test_a_misspelt_group(whole: Any, bootstrap: str, names: dict[str, str], command: str, words: str) -> None:
    misspelt = names["group"].replace("group", "gruop")
    text = said(whole, command, words.format(x=misspelt, topic=names["topic"]), bootstrap)
    assert f"group {misspelt}: there is no such group" in text
    assert f"did you mean {names['group']}?" in text


def test_one_wrong_name_deletes_nothing(bootstrap: str, names: dict[str, str], whole: Any) -> None:
    said(whole, "topic delete", f"{names['topic']} {names['topic']}x --yes", bootstrap)
    with Cluster(bootstrap) as cluster:
        assert Admin(cluster).topic(names["topic"]).name == names["topic"]


def test_a_cluster_that_does_not_answer_any_more_costs_the_hint_only() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        error = NoSuchTopic("ordrs")
        assert with_suggestion(error, f"127.0.0.1:{deaf.getsockname()[1]}") == str(error)


@pytest.mark.parametrize(
    ("name", "meant"), [("ordrs", "orders"), ("ORDERS", "orders"), ("payments", None), ("orders", None)]
)
def test_what_is_close(name: str, meant: str | None) -> None:
    assert closest(name, ["orders", "clicks"]) == meant
