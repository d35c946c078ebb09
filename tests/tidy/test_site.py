"""The documentation site has every page once, in the order a reader needs; `make docs` builds it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = (ROOT / "mkdocs.yml").read_text()
SECTION = re.compile(r"^  - (\w+):$", re.MULTILINE)
PAGE = re.compile(r"^      - (?:[\w ]+: )?(\S+\.md)$", re.MULTILINE)


def test_the_sections_are_in_reading_order() -> None:
    navigation = SITE.split("\nnav:\n", 1)[1]
    assert SECTION.findall(navigation) == ["Start", "Guides", "Reference", "Internals", "Project"]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = PAGE.findall(SITE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    own = {path.relative_to(ROOT).as_posix() for pattern in ("*.md", "bench/*.md") for path in ROOT.glob(pattern)}
    assert sorted(listed) == sorted(pages | own - {"README.md"} | {"overview.md"})


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page != "index.md" and f"({page})" not in index] == []


def test_a_dead_link_fails_the_build_and_nothing_is_fetched() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "mkdocs build --strict" in makefile
    assert "--quiet" not in makefile.split("mkdocs build", 1)[1].splitlines()[0], "it hides what --strict counts"
    assert "anchors: warn" in SITE
    assert "highlightjs: false" in SITE
