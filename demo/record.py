"""`python -m demo.record`: a terminal session of the README, run for real and drawn as an SVG.

It runs the commands of "A cluster that loses a node" with a real cluster (three processes, one of them killed) and
writes what they printed to docs/pictures/losing-a-node.svg. Fails if they print something else than the README shows.
The drawing loads no fonts or scripts from elsewhere.
"""

import re
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from demo.terminal import Story, Typed, fits

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "losing-a-node.svg"
SECTION = "A cluster that loses a node"
WIDTH = 100
FONT_FACES = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def section(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def draw(typed: list[Typed]) -> str:
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for one in typed:
        console.print(Text("$ ", style="bold green") + Text(one.command, style="bold"), soft_wrap=False)
        if one.printed.strip():
            console.print(Text(one.printed.strip("\n")))
    layout = FONT_FACES.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "ui-monospace, Menlo, Consolas")
    return console.export_svg(title="skidway", theme=SVG_EXPORT_THEME, code_format=layout, unique_id="losing-a-node")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        typed = Story(section((ROOT / "README.md").read_text(), SECTION), Path(folder)).run()
    wrong = [one for one in typed if not fits(one)]
    for one in wrong:
        print(f"$ {one.command}\nshown:\n{one.shown}\nprinted:\n{one.printed}", file=sys.stderr)
    if wrong:
        return 1
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(typed))
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
