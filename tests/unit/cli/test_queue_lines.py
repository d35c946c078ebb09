"""`skidway queue send` from standard input: what is there goes out, whether or not the input ends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from threading import Thread

import pytest
from typer.testing import CliRunner

from skidway.blocking_client.cluster import Cluster
from skidway.cli.commands.queue import app
from skidway.cli.queues.lines import BATCH_BYTES_MAX, COUNT_MAX, in_batches

SEND = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())", "queue", "send"]
LINE_MAX = 1024 * 1024


@pytest.fixture
def queue(bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    with Cluster(bootstrap):
        run("create", name)
        yield name


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def batches(content: bytes) -> list[list[bytes]]:
    """Of a pipe that somebody fills."""
    ours, theirs = os.pipe()

    def fill() -> None:
        with os.fdopen(theirs, "wb") as pipe:
            try:
                pipe.write(content)
            except BrokenPipeError:
                pass

    writer = Thread(target=fill)
    writer.start()
    with os.fdopen(ours, "rb") as source:
        found = list(in_batches(source, LINE_MAX))
    writer.join()
    return found


def test_a_line_is_sent_while_the_input_is_open(queue: str) -> None:
    sender = subprocess.Popen([*SEND, queue], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert sender.stdin is not None
        for word in (b"first\n", b"second\nthird\n"):
            sender.stdin.write(word)
            sender.stdin.flush()
            for line in word.split():
                assert run("receive", queue, "--wait", "60") == f"{line.decode()}\n"
        sender.stdin.write(b"".join(b"%d\n" % number for number in range(1_203)) + b"no newline")
        assert sender.communicate(timeout=60)[0].decode() == f"sent 1,207 messages to {queue}\n"
    finally:
        sender.kill()
        sender.communicate()
    assert len(set(run("receive", queue, "-n", "1204").splitlines())) == 1_204


def test_batches_are_bounded_by_count_and_by_bytes() -> None:
    lines = [b"%d" % number for number in range(3 * COUNT_MAX + 7)]
    found = batches(b"\n".join(lines))
    assert [line for batch in found for line in batch] == lines
    assert max(map(len, found)) == COUNT_MAX
    large = [b"x" * LINE_MAX] * 9
    found = batches(b"\n".join(large) + b"\n")
    assert [line for batch in found for line in batch] == large
    assert max(sum(map(len, batch)) for batch in found) <= BATCH_BYTES_MAX


def test_empty_lines_and_an_empty_input() -> None:
    assert batches(b"") == []
    assert [line for batch in batches(b"\na\n\n") for line in batch] == [b"", b"a", b""]


@pytest.mark.parametrize("end", [b"", b"\nnever read\n"])
def test_what_is_too_long_is_the_last(end: bytes) -> None:
    found = [line for batch in batches(b"a\n" + b"x" * 3 * LINE_MAX + end) for line in batch]
    assert found[0] == b"a"
    assert LINE_MAX < len(found[1]) <= 2 * LINE_MAX
    assert found[2:] == []
