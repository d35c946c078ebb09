"""A hook of mkdocs: what pages link to outside of docs/ becomes part of the site, under its path in the repository.

On GitHub `docs/guide/faq.md` links to `../../ROADMAP.md`; on the site docs/ is the root, so the same page is
`../ROADMAP.md`. Markdown becomes a page, everything else (examples, sources, pictures) a file as it is. A link to
something that does not exist stays as it is, and mkdocs fails the build because of it. The README is the page
`overview.md`: mkdocs would take it for the front page, which is docs/index.md.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
PAGES = ("*.md", "bench/*.md")
NAMES = {"README.md": "overview.md"}


def on_files(files: Files, config: Any) -> Files:
    """Pages that live outside of docs/, and everything that any page links to."""
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            _add(files, config, path.relative_to(ROOT).as_posix())
    for file in [file for file in files if file.src_uri.endswith(".md")]:
        text = CODE.sub("", Path(file.abs_src_path or "").read_text())
        for link in LINK.finditer(text):
            linked = _linked(file, link[2])
            if linked is not None and not linked.startswith("docs/"):
                _add(files, config, linked)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of the repository as links of the site; code is left alone."""
    folder = posixpath.dirname(page.file.src_uri) or "."
    kept: list[str] = []

    def keep(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\x00{len(kept) - 1}\x00"

    def to_site(link: re.Match[str]) -> str:
        linked = _linked(page.file, link[2])
        if linked is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(_site_name(linked), folder)}{link[3] or ''}{link[4]}"

    converted = LINK.sub(to_site, CODE.sub(keep, markdown))
    return re.sub("\x00(\\d+)\x00", lambda mark: kept[int(mark[1])], converted)


def _add(files: Files, config: Any, path: str) -> None:
    name = _site_name(path)
    if files.get_file_from_path(name) is None:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))


def _site_name(path: str) -> str:
    return NAMES.get(path, path.removeprefix("docs/"))


def _linked(file: File, target: str) -> str | None:
    """Which file of the repository a link names; None if it names none."""
    if re.match(r"[a-z]+:", target):
        return None
    path = Path(file.abs_src_path or "").parent.joinpath(target).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_file() and path.is_relative_to(ROOT) else None
