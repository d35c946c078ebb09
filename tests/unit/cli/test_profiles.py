"""Profiles: which broker a command asks, and what wins over what. And names that the shell completes."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Groups
from skidway.cli.help.completion import whole_app
from skidway.cli.help.help_pages import command_of
from skidway.cli.profiles import BadProfile, Profiles, load_profiles

PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]


def skidway(config_home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKIDWAY_")}
    return subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**kept, "XDG_CONFIG_HOME": str(config_home), "NO_COLOR": "1", "COLUMNS": "200", **environment},
    )


def test_a_profile_names_the_broker(tmp_path: Path, bootstrap: str, name: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name)
    made = skidway(tmp_path, "profile", "set", "here", "-b", bootstrap, "--timeout", "20")
    assert made.stdout == f"profile here (the default) is in {tmp_path}/skidway/profiles.toml\n"
    skidway(tmp_path, "profile", "set", "nowhere", "-b", "127.0.0.1:1")
    listed = ["topic", "list", "--names"]
    assert name in skidway(tmp_path, *listed).stdout.splitlines(), "the default"
    assert "127.0.0.1:1" in skidway(tmp_path, "--profile", "nowhere", *listed).stderr
    assert "127.0.0.1:1" in skidway(tmp_path, *listed, "--profile", "nowhere").stderr, "after the command"
    assert "127.0.0.1:1" in skidway(tmp_path, "topic", "--profile=nowhere", "list").stderr, "in the middle"
    chosen = skidway(tmp_path, *listed, "--profile", "here", SKIDWAY_PROFILE="lost")
    assert name in chosen.stdout.splitlines(), "the flag wins over the variable"
    assert "127.0.0.1:1" in skidway(tmp_path, *listed, SKIDWAY_PROFILE="nowhere").stderr
    over = {"SKIDWAY_PROFILE": "nowhere", "SKIDWAY_BOOTSTRAP": bootstrap}
    assert name in skidway(tmp_path, *listed, **over).stdout.splitlines(), "the environment wins over a profile"
    given = skidway(tmp_path, *listed, "-b", bootstrap, SKIDWAY_PROFILE="nowhere", SKIDWAY_BOOTSTRAP="127.0.0.1:2")
    assert name in given.stdout.splitlines(), "a flag wins over both"
    skidway(tmp_path, "profile", "use", "nowhere")
    assert "127.0.0.1:1" in skidway(tmp_path, *listed).stderr
    shown = json.loads(skidway(tmp_path, "profile", "list", "--json").stdout)["profiles"]
    assert [(one["name"], one["in_force"]) for one in shown] == [("here", False), ("nowhere", True)]
    assert json.loads(skidway(tmp_path, "profile", "show", "here", "--json").stdout) == {
        "name": "here",
        "bootstrap": bootstrap,
        "timeout": 20.0,
    }
    skidway(tmp_path, "profile", "delete", "nowhere")
    assert "127.0.0.1:9092" in skidway(tmp_path, "topic", "list", "--help").stdout, "no default is left"


def test_every_command_that_asks_a_broker_has_profiles(tmp_path: Path) -> None:
    """All that take --bootstrap, but the one that writes it into a profile."""

    def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, one in getattr(command, "commands", {}).items():
            yield from leaves(one, (*words, name))
        yield " ".join(words), command

    taking = {
        words: {name for option in one.params for name in option.opts}
        for words, one in leaves(command_of(whole_app()), ())
        if not hasattr(one, "commands")
    }
    asking = {words for words, names in taking.items() if "--bootstrap" in names} - {"profile set"}
    assert len(asking) > 25
    assert {words for words, names in taking.items() if "--profile" in names} == asking
    # A pipeline's options are made when it is run.
    assert "--profile" in skidway(tmp_path, "pipeline", "run", "archive", "--help").stdout


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    ended = skidway(tmp_path, "topic", "list", SKIDWAY_PROFILE="x")
    assert ended.returncode == 1
    assert ended.stderr == (f"error: there is no profile x in {tmp_path}/skidway/profiles.toml; there are none yet\n")
    assert skidway(tmp_path, "size", "--messages", "1", "--bytes", "1", SKIDWAY_PROFILE="x").returncode == 0
    assert skidway(tmp_path, "topic", "list", "--profile", "x").stderr == ended.stderr
    assert skidway(tmp_path, "--profile").returncode == 2
    assert skidway(tmp_path, "topic", "list", "--profile").returncode == 2
    skidway(tmp_path, "profile", "set", "staging", "-b", "127.0.0.1:1")
    assert "did you mean staging?" in skidway(tmp_path, "topic", "list", "--profile", "stagin").stderr
    skidway(tmp_path, "profile", "delete", "staging")
    assert "no profile is in use" in skidway(tmp_path, "profile", "show").stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "cannot read "),
        ("defalt = 'a'", "expected default"),
        ("[profiles.a]\nbotstrap = 'x:1'", "unknown setting botstrap; known settings are bootstrap, timeout"),
        ("[profiles.a]\ntimeout = 'long'", "timeout is 'long'; expected seconds"),
        ("[profiles]\na = 1", "expected a table"),
    ],
)
def test_a_file_that_commands_cannot_go_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("SKIDWAY_PROFILES", str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BadProfile, match=said):
        load_profiles()


def test_any_name_survives_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_PROFILES", str(tmp_path / "mine.toml"))
    odd = 'a "b" \\ ] \n.c ü'
    written = Profiles(tmp_path / "mine.toml", {odd: {"bootstrap": "x:1", "timeout": 0.5}}, odd)
    written.save()
    assert load_profiles() == written
    assert stat.S_IMODE((tmp_path / "mine.toml").stat().st_mode) == 0o600


def offered(config_home: Path, typed: str, **environment: str) -> set[str]:
    words = {"_SKIDWAY_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    return set(skidway(config_home, **words, **environment).stdout.split())


def test_the_shell_completes_names(tmp_path: Path, bootstrap: str, name: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name)
        Groups(cluster).commit(f"{name}-group", {(name, 0): 0})
        node = str(next(iter(cluster.refresh([]).brokers)))
    for typed in ("consume", "produce", "topic describe", "topic trim", "group reset g --topic", "dlq show"):
        assert offered(tmp_path, f"skidway {typed} {name}", SKIDWAY_BOOTSTRAP=bootstrap) == {name}, typed
    assert offered(tmp_path, f"skidway group describe {name}", SKIDWAY_BOOTSTRAP=bootstrap) == {f"{name}-group"}
    assert offered(tmp_path, f"skidway consume x --group {name}", SKIDWAY_BOOTSTRAP=bootstrap) == {f"{name}-group"}
    assert offered(tmp_path, "skidway config list --broker ", SKIDWAY_BOOTSTRAP=bootstrap) == {node}
    skidway(tmp_path, "profile", "set", "here", "-b", bootstrap)
    assert offered(tmp_path, f"skidway topic describe {name}") == {name}, "the profile's broker"
    assert offered(tmp_path, "skidway profile use h") == {"here"}
    assert offered(tmp_path, "skidway topic list --profile h") == {"here"}
    skidway(tmp_path, "profile", "set", "nowhere", "-b", "127.0.0.1:1")
    assert offered(tmp_path, f"skidway topic describe --profile nowhere {name}") == set()
    assert offered(tmp_path, f"skidway topic describe {name}", SKIDWAY_BOOTSTRAP="127.0.0.1:1") == set()
