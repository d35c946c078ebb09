"""schemathesis asks a real broker what its description says, and what it does not: no answer is a surprise."""

import re
import subprocess
import sys
from pathlib import Path

from skidway.testing import Broker

COMMAND = Path(sys.executable).with_name("schemathesis")
ENDLESS = ("/v1/topics/{topic}/stream", "/v1/ws")
BEYOND_THE_SCHEMA = "positive_data_acceptance"
"""Some rules have no place in a schema: a record has value or valueBase64, and base64 is base64."""


def test_answers_are_as_they_are_described(tmp_path: Path) -> None:
    with Broker(http="127.0.0.1:0", flush="os") as broker:
        words = ["run", f"{broker.http}/openapi.json", "--no-color", "--exclude-checks", BEYOND_THE_SCHEMA]
        words += [word for path in ENDLESS for word in ("--exclude-path", path)]
        words += ["--max-examples", "3", "--phases", "fuzzing", "--seed", "1", "--request-timeout", "30"]
        run = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-5_000:] + run.stderr[-2_000:]
    selected = re.search(r"Selected: (\d+)/(\d+)\n +Tested: (\d+)\n", run.stdout)
    assert selected is not None, run.stdout[-2_000:]
    assert int(selected[1]) == int(selected[3]) == int(selected[2]) - len(ENDLESS) > 10
