"""The site of the pages: each page has one place in it."""

import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.docs.headings import links_to_the_site

ROOT = Path(__file__).parents[2]


def places(nav):
    """All pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in places(part)]


def test_each_page_has_one_place_in_the_site():
    counts = Counter(places(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    above = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert counts == dict.fromkeys(pages | above, 1)


def test_how_to_has_the_pages_that_a_test_follows():
    (pages,) = [part["How to"] for part in yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"] if "How to" in part]
    assert set(pages) == {f"how-to/{page.name}" for page in (ROOT / "docs/how-to").glob("*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, made anew."""
    if find_spec("mkdocs") is None:
        pytest.skip("no MkDocs here: run make site (half a minute)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_link_of_the_site_leads_nowhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page for page in pages if 'src="http' in page.read_text()], "a page loads something from elsewhere"


def test_links_of_alerts_and_panels_lead_to_the_site(site):
    for place, link in links_to_the_site().items():
        page, _, anchor = link.partition("#")
        assert f'id="{anchor}"' in (site / page).read_text(), f"{place} leads to {link}"
