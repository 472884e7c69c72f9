"""The headings of pages, and the links that alerts and dashboards have to them."""

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SITE = "http://localhost:8000"
"""Where the files of deploy/ expect the site of docs/."""


def anchors(page: Path) -> set[str]:
    """Headings of a page, as they are linked to."""
    text = BLOCK.sub("", page.read_text())
    return {_anchor(head) for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def _anchor(head: str) -> str:
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")


def section(page: Path, anchor: str) -> str:
    """The text below a heading of a page, up to the next heading of any level."""
    _, *parts = re.split(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), flags=re.MULTILINE)
    (body,) = (text for head, text in zip(parts[::2], parts[1::2], strict=True) if _anchor(head) == anchor)
    return body


def links_to_the_site() -> dict[str, str]:
    """Links of alerts and panels as readers follow them, by what has them: page of the site, and anchor."""
    links = {}
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                links[rule["alert"]] = rule["annotations"]["runbook_url"]
    for file in sorted((ROOT / "deploy/grafana").glob("*.json")):
        dashboard = json.loads(file.read_text())
        (docs,) = (each for each in dashboard["templating"]["list"] if each["name"] == "docs")
        assert docs["query"] == docs["current"]["value"] == docs["current"]["text"]
        for panel in dashboard["panels"]:
            for link in panel["links"]:
                links[f"{file.stem}: {panel['title']}"] = link["url"].replace("${docs:raw}", docs["query"])
    assert all(link.startswith(f"{SITE}/") for link in links.values()), links
    return {place: link.removeprefix(f"{SITE}/") for place, link in links.items()}
