"""Every line of `skidway cheat` works as printed: a shell runs them in order against a broker of their own."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from skidway.cli.commands import cheat
from skidway.testing import Broker

PROGRAM = f"""#!{sys.executable}
import sys
from skidway.cli.main import main
sys.exit(main())
"""


def test_ten_lines_are_printed_with_what_they_do() -> None:
    shown = CliRunner().invoke(cheat.app, []).stdout.splitlines()
    assert len(shown) == 20
    assert all(line.startswith("# ") for line in shown[::2])
    assert shown[1::2] == [line.command for line in cheat.LINES]


def test_every_line_runs(tmp_path: Path) -> None:
    program = tmp_path / "skidway"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    said = {}
    with Broker() as broker:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SKIDWAY_BOOTSTRAP": broker.bootstrap,
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        # The tour of the README leaves a topic of this name behind, so the first line may find it there.
        for line in (cheat.LINES[0], *cheat.LINES):
            command = ["bash", "-o", "pipefail", "-c", line.command]
            ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
            assert ended.returncode == 0, f"{line.command}: {ended.stderr}"
            assert "error" not in ended.stderr, line.command
            said[line.what] = ended.stdout + ended.stderr
    assert said[cheat.LINES[0].what] == "orders exists already\n"
    assert "ann: apple" in said["print what came in the last 10 minutes, your way"]
    assert "sent 2 messages" in said["copy a topic, with keys and headers"]
    assert "lag 0" in said["see how far behind a group is"]
    assert "group audit reset" in said["let a group read the last hour again"]
    assert "ready" in said["wait until the cluster is healthy"]
