"""Brokers start quickly where PYTHONDONTWRITEBYTECODE is set: they compile at most once on a machine."""

import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skidway
from skidway.testing import bytecode

INHERITED = {"PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin"}
STARTS_A_BROKER = "from skidway.testing import Broker\nwith Broker(): pass"
CACHES = (bytecode._is_compiled, bytecode._directory, bytecode._own_directory)


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    yield
    for cache in CACHES:
        cache.cache_clear()


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one module, and a cache directory of its own."""
    package = tmp_path / "sources" / "skidway"
    (package / "broker").mkdir(parents=True)
    (package / "broker" / "node.py").write_text("ANSWER = 42\n")
    (package / "spark").mkdir()
    (package / "spark" / "source.py").write_text("never loaded by a broker\n")
    monkeypatch.setattr(bytecode, "PACKAGE", package)
    monkeypatch.setattr(bytecode, "PYTHON_MODULE", package / "broker" / "node.py")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for cache in CACHES:
        cache.cache_clear()
    return package


def test_bytecode_beside_the_sources_is_used_and_nothing_is_written(sources: Path) -> None:
    compileall.compile_dir(sources / "broker", quiet=1)
    assert bytecode.environment(INHERITED) == INHERITED


@pytest.mark.parametrize("damage", ["never compiled", "edited since", "of another Python", "cut short"])
def test_otherwise_all_brokers_of_the_machine_share_a_directory(sources: Path, tmp_path: Path, damage: str) -> None:
    module = sources / "broker" / "node.py"
    if damage != "never compiled":
        compileall.compile_dir(sources / "broker", quiet=1)
    compiled = next(module.parent.glob("__pycache__/*.pyc"), module)
    if damage == "edited since":
        module.write_text("ANSWER = 43 # longer\n")
    elif damage == "of another Python":
        compiled.write_bytes(b"\0\0\0\0" + compiled.read_bytes()[4:])
    elif damage == "cut short":
        compiled.write_bytes(compiled.read_bytes()[:5])
    shared = tmp_path / "cache" / "skidway" / "bytecode"
    assert bytecode.environment(INHERITED) == {"PATH": "/bin", "PYTHONPYCACHEPREFIX": str(shared)}


def test_where_the_cache_cannot_be_written_it_goes_with_the_process(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a directory")
    prefix = Path(bytecode.environment(INHERITED)["PYTHONPYCACHEPREFIX"])
    assert prefix.is_dir()
    assert not prefix.is_relative_to(tmp_path)


def test_who_writes_bytecode_or_says_where_is_left_alone(sources: Path) -> None:
    assert bytecode.environment({"PATH": "/bin"}) == {"PATH": "/bin"}
    own = {**INHERITED, "PYTHONPYCACHEPREFIX": "/somewhere"}
    assert bytecode.environment(own) == own


def test_a_second_test_run_compiles_nothing(tmp_path: Path) -> None:
    """With a package that was installed without bytecode, as images do it."""
    package = Path(skidway.__file__).parent
    copy = tmp_path / "sources" / "skidway"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "spark", "sim", "cli"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    compiled: list[dict[Path, int]] = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", STARTS_A_BROKER], env=environment, timeout=120, check=True)
        files = (tmp_path / "cache").rglob("*.pyc")
        compiled.append({file: file.stat().st_mtime_ns for file in files})
    assert any(file.match("skidway/broker/node.*.pyc") for file in compiled[0])
    assert compiled[0].items() <= compiled[1].items(), "what the first run had is not compiled again"
    # A broker loads handlers one after the other while it runs; the second may have got further.
    assert len(compiled[1]) < 1.5 * len(compiled[0])
    assert not list(copy.rglob("*.pyc")), "nothing is left beside the sources"
