"""`constraints.txt` fits `pyproject.toml`: every requirement has an exact version there that it allows."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKED = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = sorted(
    {
        each
        for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
        for each in group
        if not each.startswith("skidway")
    }
)


def test_every_version_is_exact_and_comes_from_the_index() -> None:
    assert len(LOCKED) > len(REQUIRED) > 20
    for requirement in LOCKED:
        assert requirement.url is None, requirement
        assert [each.operator for each in requirement.specifier] == ["=="], requirement


@pytest.mark.parametrize("text", REQUIRED)
def test_a_requirement_has_a_version_that_it_allows(text: str) -> None:
    required = Requirement(text)
    name = canonicalize_name(required.name)
    locked = [each for each in LOCKED if canonicalize_name(each.name) == name]
    assert locked, f"{name} is not in constraints.txt: make lock"
    for each in locked:
        (version,) = [clause.version for clause in each.specifier]
        assert required.specifier.contains(version), f"{text}, but constraints.txt has {version}: make lock"
