"""What the site adds to the pages of docs/: the README as its front page, other pages of the root, and the examples.

All of them are read where they are, so that nothing is written twice, and links that are right on GitHub are made right
for the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the root, and what they are called in the site."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for script in sorted((ROOT / "examples").glob("*.py")):
        source = f"# {script.name}\n\n```python\n{script.read_text(encoding='utf-8')}```\n"
        files.append(File.generated(config, f"examples/{script.stem}.md", content=source))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links as they are on GitHub, `docs/train.md` or `../examples/x.py`, lead to the site's pages."""
    return re.sub(r"\]\(([^)\s]+)\)", lambda link: f"]({site_target(link[1])})", markdown)


def site_target(target: str) -> str:
    """Where a link leads in the site; what is not in it stays as it is, and the build says so."""
    path, mark, anchor = target.partition("#")
    path = path.removeprefix("../").removeprefix("docs/")
    path = re.sub(r"^(examples/\w+)\.py$", r"\1.md", path)
    return PAGES.get(path, path) + mark + anchor


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """All titles of a page are in its contents: the theme looks only below the first."""
    if page.toc.items:
        first, *others = page.toc.items
        first.children.extend(others)
        del page.toc.items[1:]
    return html
