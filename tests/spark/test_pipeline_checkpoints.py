"""Checkpoints that a driver left behind when it was killed."""

from pathlib import Path

import pytest

from skidway.spark.pipelines.checkpoints import clear_unfinished, local_folder, location

UNFINISHED = ".0.d901ab02-3b42-49e3-a9e4-0d188d83082d.tmp"
FOREIGN = [".0.crc", "notes.txt", ".hidden.tmp", "0.tmp"]


def left(folder: Path, *names: str) -> Path:
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
        for name in names:
            (folder / log / name).touch()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_was_not_finished_before_the_first_batch_is_cleared(tmp_path: Path, scheme: str) -> None:
    folder = left(tmp_path / "checkpoint", UNFINISHED, f".{UNFINISHED}.crc", *FOREIGN)
    clear_unfinished(f"{scheme}{folder}")
    assert names_in(folder) == sorted(f"{log}/{name}" for log in ("offsets", "commits") for name in FOREIGN)


def test_a_query_that_has_planned_a_batch_is_left_alone(tmp_path: Path) -> None:
    folder = left(tmp_path / "checkpoint", "0", UNFINISHED)
    before = names_in(folder)
    clear_unfinished(str(folder))
    assert names_in(folder) == before


def test_what_is_not_there_or_not_here_is_nobodys_affair(tmp_path: Path) -> None:
    clear_unfinished(str(tmp_path / "nowhere"))
    clear_unfinished("s3a://bucket/checkpoint")
    assert local_folder("s3a://bucket/checkpoint") is None
    assert location("s3a://bucket/checkpoint") == "s3a://bucket/checkpoint"
    assert location(f"{tmp_path}/x") == location(f"file://{tmp_path}/x") == f"file://{tmp_path}/x"
