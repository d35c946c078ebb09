"""`make area A=groups`: prints the test files whose path contains the word, or says which areas there are."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(word: str) -> int:
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    found = [file.as_posix() for file in files if word and word in file.as_posix().removeprefix("tests/")]
    if found:
        print(*found)
        return 0
    areas = sorted({part for file in files for part in file.parent.parts if part != "tests"})
    problem = f"no test file has {word!r} in its path" if word else "which area? make area A=groups"
    print(f"{problem}; directories are: {', '.join(areas)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
