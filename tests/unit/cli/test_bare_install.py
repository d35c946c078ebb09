"""Every command where only the base dependencies are installed: what needs an extra says which, and nothing else fails.

The ordinary test makes an environment of what `pip install skidway` brings, out of what is installed here. `make chaos`
builds the wheel and lets pip install it.
"""

import json
import os
import re
import socket
import subprocess
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from skidway.cli.main import COMMANDS
from skidway.client.extras import EXTRAS
from skidway.spark.pipelines import CATALOGUE

ROOT = Path(__file__).parents[3]
HINT = re.compile(r"^error: this needs \S+, which is not installed: pip install 'skidway\[(spark|pipelines)\]'$")

# Runs each line of words in one process and prints what became of it. Help is asked of every command there is.
DRIVER = """
import io, json, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from skidway.cli.help.completion import whole_app
from skidway.cli.help.help_pages import command_of
from skidway.cli.main import main

def leaves(command, words):
    inner = getattr(command, "commands", None)
    if not inner:
        yield words
        return
    yield words
    for name, one in inner.items():
        yield from leaves(one, [*words, name])

def attempt(words):
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as ending:
            code = ending.code
        except BaseException:
            code = traceback.format_exc()
    out.seek(0)
    return {"words": words, "code": code, "out": out.read(), "err": err.getvalue()}

known = list(leaves(command_of(whole_app()), []))
told = json.load(sys.stdin)
sys.stdin = open("/dev/null")
found = [attempt([*words, "--help"]) for words in known]
found += [attempt(words) for words in told]
json.dump({"known": [" ".join(words) for words in known], "found": found}, sys.stdout)
"""


def uses(bootstrap: str, folder: Path) -> list[list[str]]:
    """One use of every command, none of which needs a broker to end."""
    at = ["-b", bootstrap]
    return [
        ["cluster", "start", "--data-dir", str(folder / "c"), "--nodes", "1", "--base-port", "65535", "--set", "x"],
        ["cluster", "restart-node", "1", "--data-dir", str(folder / "c")],
        *(["cluster", name, *more, *at] for name, more in CLUSTER.items()),
        *(["topic", name, *more, *at] for name, more in TOPIC.items()),
        ["produce", "a", *at],
        ["consume", "a", *at],
        *(["queue", name, *more, *at] for name, more in QUEUE.items()),
        ["queue", "schedule", "create", "q", "body", "--in", "1h", *at],
        ["queue", "schedule", "list", "q", *at],
        ["queue", "schedule", "cancel", "q", "id", *at],
        ["group", "list", *at],
        ["group", "describe", "g", *at],
        ["group", "reset", "g", "--to", "earliest", *at],
        ["group", "alter", "g", "-c", "share.auto.offset.reset=earliest", *at],
        ["group", "forget", "g", "--topic", "a", *at],
        ["group", "delete", "g", "--yes", *at],
        ["transaction", "list", *at],
        ["transaction", "describe", "x", *at],
        ["transaction", "abort", "x", "--yes", *at],
        ["transaction", "hanging", *at],
        ["dlq", "list", *at],
        ["dlq", "show", "a-dlq", *at],
        ["dlq", "redrive", "a-dlq", *at],
        ["dlq", "replay", "a-dlq", *at],
        ["config", "list", *at],
        ["config", "get", "num.partitions", *at],
        ["config", "set", "log.retention.ms=1", *at],
        ["config", "reset", "log.retention.ms", *at],
        ["profile", "list"],
        ["profile", "set", "here", *at],
        ["profile", "show"],
        ["profile", "use", "here"],
        ["profile", "delete", "here"],
        ["pipeline", "list"],
        ["pipeline", "status", str(folder)],
        ["pipeline", "init", str(folder / "project"), "--topic", "a", *at],
        ["pipeline", "maintain", str(folder)],
        ["pipeline", "run"],
        ["size", "--messages", "10", "--bytes", "100"],
        ["doctor", "--listen", bootstrap, "--data-dir", str(folder / "data"), *at],
        ["cheat"],
        ["inspect", "log", str(folder)],
        ["sim", "run", "--seeds", "1", "--jobs", "1", "--nodes", "0"],
        ["sim", "replay", "--seed", "-1"],
        ["sim", "shrink", "--seed", "-1"],
        ["bench", "produce", *at],
        ["bench", "consume", *at],
        ["bench", "latency", *at],
    ]


CLUSTER: dict[str, list[str]] = {
    "describe": [],
    "health": ["--http-at", "127.0.0.1:1"],
    "features": [],
    "drain": ["1"],
    "elect-leaders": [],
    "unregister": ["1"],
    "add-voter": ["1"],
    "remove-voter": ["1"],
}
QUEUE = {
    "create": ["q"],
    "list": [],
    "describe": ["q"],
    "peek": ["q"],
    "purge": ["q", "--yes"],
    "delete": ["q", "--yes"],
    "send": ["q", "body"],
    "receive": ["q"],
    "alter": ["q", "--delay", "1"],
    "ack": ["receipt"],
    "release": ["receipt"],
    "reject": ["receipt"],
    "extend": ["receipt"],
}
TOPIC: dict[str, list[str]] = {
    "create": ["a"],
    "list": [],
    "describe": ["a"],
    "alter": ["a", "--reset", "segment.bytes"],
    "grow": ["a", "2"],
    "delete": ["a", "--yes"],
    "reassign": ["a", "--to", "1"],
    "trim": ["a", "--before", "end", "--yes"],
}


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return found[0]


def closure(names: list[str]) -> dict[str, Distribution]:
    """What these distributions need, without extras, as far as it is needed here."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name.lower() in found:
            continue
        try:
            found[name.lower()] = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform or Python
        for need in found[name.lower()].requires or []:
            if "extra ==" not in need.replace('"', "").replace("'", ""):
                waiting.append(name_of(need))
    return found


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with links to skidway's sources and to its base dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    needs = distribution("skidway").requires or []
    base = [name_of(need) for need in needs if "extra ==" not in need]
    for one in closure(base).values():
        for top in {Path(str(file)).parts[0] for file in one.files or []} - {"..", "__pycache__"}:
            source = Path(str(one.locate_file(top)))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    for package in ("skidway", "pyspark_skidway"):
        (site / package).symlink_to(ROOT / "src" / package)
    return folder / "bin" / "python"


def run_all(python: Path, folder: Path) -> dict[str, Any]:
    """Every command's help and one use of each; a port that nobody listens on is the broker."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        told = uses(f"127.0.0.1:{deaf.getsockname()[1]}", folder)
        told += [["pipeline", "run", name, *more] for name in CATALOGUE for more in (["--help"], ["--topic", "a"])]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKIDWAY_", "PYTHON"))}
        ended = subprocess.run(
            [python, "-c", DRIVER],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            timeout=240,
            cwd=folder,
            env={**kept, "NO_COLOR": "1", "COLUMNS": "200", "XDG_CONFIG_HOME": str(folder)},
        )
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def check_all(document: dict[str, Any]) -> None:
    used = [f"{' '.join(one['words'])} " for one in document["found"] if one["words"][-1:] != ["--help"]]
    tried = {known for known in document["known"] for use in used if use.startswith(f"{known} ")}
    missing = [known for known in document["known"] if known not in (*tried, "", "serve")]
    assert missing == [], "commands that are not tried: add them to `uses`"
    assert set(COMMANDS) <= set(document["known"])
    hinted = []
    for one in document["found"]:
        words, code = " ".join(one["words"]), one["code"]
        assert isinstance(code, int), f"{words}:\n{code}"
        assert "Traceback" not in one["err"], words
        if HINT.match(one["err"].strip()):
            assert code == 1
            hinted.append(words)
        elif words.endswith("--help"):
            assert code == 0, f"{words}: {one['err']}"
            assert not re.search(r"<(bool|str|int|float|list|path|Path)", one["out"]), f"{words} shows a type of Python"
    runs = {f"pipeline run {name}{more}" for name in CATALOGUE for more in (" --help", " --topic a")}
    assert runs <= set(hinted)
    others = {words for words in hinted if words not in runs}
    assert all(words.startswith("pipeline maintain ") for words in others), others


def test_every_command_on_a_bare_install(bare_python: Path, tmp_path: Path) -> None:
    listed = subprocess.run([bare_python, "-c", "import pyspark"], capture_output=True, text=True)
    assert "ModuleNotFoundError" in listed.stderr, "the environment is not bare"
    check_all(run_all(bare_python, tmp_path))


@pytest.mark.chaos
def test_every_command_of_the_wheel(tmp_path: Path) -> None:
    """Needs a registry to install from."""
    tools, fresh = tmp_path / "tools", tmp_path / "fresh"
    for folder in (tools, fresh):
        venv.create(folder, with_pip=True)
    subprocess.run([tools / "bin" / "pip", "-q", "wheel", "--no-deps", "-w", tmp_path / "wheel", ROOT], check=True)
    (wheel,) = (tmp_path / "wheel").glob("skidway-*.whl")
    subprocess.run([fresh / "bin" / "pip", "-q", "install", wheel], check=True)
    check_all(run_all(fresh / "bin" / "python", tmp_path))


def test_every_library_of_an_extra_has_a_hint() -> None:
    """An extra that is not in EXTRAS would be a traceback where it is missing."""
    named = {entry[1].partition("[")[0] for entry in EXTRAS.values()}
    wanted = {
        name_of(need).lower()
        for need in distribution("skidway").requires or []
        if re.search(r"extra == ['\"](client|redis|postgres|spark|pipelines)['\"]", need)
    }
    assert wanted - {"skidway"} <= named
