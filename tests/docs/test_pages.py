"""What the pages tell readers to do can be done: links lead somewhere, configurations are valid, commands exist."""

import re
from pathlib import Path

import pytest

from proxy.config.model import load_config
from sluice.reference import all_commands

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\.venv/bin/)?sluice (\w+)([^#|\n]*)", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Headings, as they are linked to."""
    text = _BLOCK.sub("", page.read_text())
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(_BLOCK.sub("", page.read_text())):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{name} is not there"
        assert not anchor or anchor in _anchors(target), f"{name or page.name} has no heading #{anchor}"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_whole_configuration_is_valid(page: str, tmp_path: Path) -> None:
    found = [text for kind, text in _BLOCK.findall((ROOT / page).read_text()) if kind == "yaml"]
    assert len(found) == 1
    path = tmp_path / "sluice.yaml"
    path.write_text(found[0])
    assert load_config(path, {}).limits.namespaces


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_and_their_options_exist(page: Path) -> None:
    options = {name: {each for one in command.params for each in one.opts} for name, command in all_commands()}
    text = "".join(block for kind, block in _BLOCK.findall(page.read_text()) if kind in {"", "sh"})
    for command, rest in _COMMAND.findall(text):
        name = next((each for each in options if each == f"sluice {command}"), None)
        if name is None:
            group = f"sluice {command} {rest.split()[0]}" if rest.split() else ""
            assert group in options, f"sluice {command} is not there"
            name = group
        for option in re.findall(r"(?<=\s)--[a-z-]+", rest):
            assert option in options[name] | {"--help"}, f"{name} has no {option}"
