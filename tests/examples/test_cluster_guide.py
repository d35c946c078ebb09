"""What docs/guide/cluster.md shows is what happens; so are the files that docs/guide/deployment.md shows."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skidway.server.config import load_settings
from skidway.server.flags import build_parser, settings_from

PAGES = Path(__file__).parents[2] / "docs" / "guide"
GUIDE = (PAGES / "cluster.md").read_text()
DEPLOYMENT = (PAGES / "deployment.md").read_text()
PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]


def blocks(language: str, page: str = GUIDE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.xdist_group("cluster")
def test_the_python_of_the_guide_runs() -> None:
    (code,) = blocks("python")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_size_that_is_shown_is_the_size_that_is_told() -> None:
    (block,) = [block for block in blocks("console") if block.startswith("$ skidway size")]
    command, _, shown = block.partition("\n")
    words = shlex.split(command.removeprefix("$ skidway "))
    ended = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)
    assert [line.rstrip() for line in ended.stdout.splitlines()] == [line.rstrip() for line in shown.splitlines()]


def test_the_settings_of_the_guide_are_settings(tmp_path: Path) -> None:
    (toml,) = blocks("toml")
    file = tmp_path / "skidway.toml"
    file.write_text(toml)
    settings = load_settings(str(file))
    assert len(settings.voter_list()) == 3
    assert settings.topic_defaults == {"min.insync.replicas": "2"}


def test_inside_and_outside_are_listeners() -> None:
    (command,) = [block for block in blocks("console") if "OUTSIDE=" in block]
    words = shlex.split(command.replace("\\\n", " "))[3:]
    listeners = settings_from(build_parser("skidway serve").parse_args(words)).listener_list()
    assert [(spec.name, str(spec.advertised)) for spec in listeners] == [
        ("INSIDE", "10.0.0.5:9092"),
        ("OUTSIDE", "broker-1.example:9192"),
        ("HTTP", "127.0.0.1:8082"),  # on by default beside Kafka's port
    ]
    assert listeners.inter_broker.name == "INSIDE"


def test_a_broker_starts_with_the_settings_of_the_deployment_page(tmp_path: Path) -> None:
    """As its unit starts it: with that file, and in the directory that systemd makes."""
    (unit,), (toml,) = blocks("ini", DEPLOYMENT), blocks("toml", DEPLOYMENT)
    file = tmp_path / "skidway.toml"
    file.write_text(toml)
    settings = load_settings(str(file))
    assert (settings.listen, settings.advertise) == ("10.0.0.5:9092", "broker.example:9092")
    assert f"StateDirectory={Path(settings.data_dir).name}\n" in unit
    assert re.search(r"^ExecStart=\S+/skidway serve --config /etc/skidway.toml$", unit, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_finds_nothing_wrong_with_the_unit_of_the_guide(tmp_path: Path) -> None:
    (unit,) = blocks("ini", DEPLOYMENT)
    (program,) = re.findall(r"^ExecStart=(\S+)", unit, re.MULTILINE)
    file = tmp_path / "skidway.service"
    file.write_text(unit.replace(program, sys.executable))
    ended = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, timeout=60)
    complaints = [line for line in ended.stderr.splitlines() if file.name in line]
    assert (ended.returncode, complaints) == (0, [])


@pytest.mark.parametrize("command", re.findall(r"^\$ skidway ((?:cluster|topic|size) [\w-]+)", GUIDE, re.MULTILINE))
def test_every_command_of_the_guide_exists(command: str) -> None:
    words = command.split() if not command.startswith("size") else ["size"]
    ended = subprocess.run([*PROGRAM, *words, "--help"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
