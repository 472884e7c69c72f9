"""What the pages tell readers to do can be done: links lead somewhere, configurations are valid, commands exist."""

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from compliance.stream import metrics
from compliance.stream.ledger import summary
from limiter.levels import LEVELS
from proxy.config.model import load_config
from sluice.reference import all_commands
from tests.docs.headings import BLOCK, anchors

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_COMMAND = re.compile(r"^(?:\.venv/bin/)?sluice (\w+)([^#|\n]*)", re.MULTILINE)


def test_the_page_of_limits_has_a_row_for_each_level() -> None:
    section = (ROOT / "docs/limits.md").read_text().partition("\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([a-z ]+) \| `", section, re.MULTILINE)
    words = [level.word.replace("_", " ") for level in LEVELS if not level.is_of_system]
    assert sorted(rows) == sorted(words)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(BLOCK.sub("", page.read_text())):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{name} is not there"
        assert not anchor or anchor in anchors(target), f"{name or page.name} has no heading #{anchor}"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_whole_configuration_is_valid(page: str, tmp_path: Path) -> None:
    configurations = [text for kind, text in BLOCK.findall((ROOT / page).read_text()) if kind == "yaml"]
    assert len(configurations) == 1
    path = tmp_path / "sluice.yaml"
    path.write_text(configurations[0])
    assert load_config(path, {}).limits.namespaces


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_and_their_options_exist(page: Path) -> None:
    options = {
        name: {each for parameter in command.params for each in parameter.opts} for name, command in all_commands()
    }
    text = "".join(block for kind, block in BLOCK.findall(page.read_text()) if kind in {"", "sh"})
    for command, rest in _COMMAND.findall(text):
        name = next((each for each in options if each == f"sluice {command}"), None)
        if name is None:
            group = f"sluice {command} {rest.split()[0]}" if rest.split() else ""
            assert group in options, f"sluice {command} is not there"
            name = group
        for option in re.findall(r"(?<=\s)--[a-z-]+", rest):
            assert option in options[name] | {"--help"}, f"{name} has no {option}"


def test_metrics_that_pages_name_exist() -> None:
    """A name that ends with `_` stands for several."""
    known = set(re.findall(r"`(sluice_\w+)", (ROOT / "docs/metrics.md").read_text()))
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "count", "sum")}
    now = datetime.now(UTC)
    of_job = msgspec.structs.replace(summary({}, now), complete_up_to=now.isoformat())
    known |= set(re.findall(r"^sluice_\w+", metrics.encoded(of_job, now).decode(), re.MULTILINE))
    for page in (page for page in PAGES if page.name != "CHANGELOG.md"):  # which names what is gone
        named = set(re.findall(r"(?<![\w/.-])sluice_[a-z_]+(?![\w/.])", page.read_text()))
        unknown = {name for name in named if not any(each.startswith(name.removesuffix("_")) for each in known)}
        assert not unknown, f"{page.name} names {sorted(unknown)}"


@pytest.mark.parametrize(
    "file", ["deploy/helm/sluice/dashboards/sluice-fleet.json", "docs/questions.md", "docs/metrics.md"]
)
def test_lateness_of_the_heartbeat_is_not_called_measured(file: str) -> None:
    words = " ".join((ROOT / file).read_text().split())
    assert "the heartbeat" in words
    assert "no message is measured" in words.lower()
