"""Gives the site of docs/ the pages that are above it, and has no page link to what is not in the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).resolve().parents[1]
_ABOVE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages above docs/, with their links as they are from within it."""
    for name in _ABOVE:
        text = (_ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Keep links to pages of the site; of one to a file of the sources, keep the text and its path."""
    here = (_ROOT / "docs" / page.file.src_uri).parent

    def linked(link: re.Match[str]) -> str:
        text, name, anchor = link.groups(default="")
        target = (here / name).resolve()
        for root in (_ROOT / "docs", _ROOT):
            if target.is_relative_to(root) and (uri := str(target.relative_to(root))) in files.src_uris:
                above = "../" * page.file.src_uri.count("/")
                return f"[{text}]({above}{uri}{anchor})"
        path = target.relative_to(_ROOT) if target.exists() else Path(name)
        return f"{text} (`{path}`)" if f"`{path}`" != text else text

    return _LINK.sub(linked, markdown)
