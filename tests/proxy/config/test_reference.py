"""docs/configuration.md says what the model says."""

from pathlib import Path

from proxy.config.model import Config
from proxy.config.reference import reference

PAGE = Path(__file__).resolve().parents[3] / "docs/configuration.md"


def test_the_page_is_fresh():
    """Remedy: python -m proxy.config.reference > docs/configuration.md."""
    assert PAGE.read_text() == reference(), "docs/configuration.md is not as the code has it: run `make references`"


def test_every_top_level_key_is_on_the_page():
    page = reference()
    assert [name for name in Config.model_fields if f"| `{name}" not in page] == []


def test_every_row_has_a_type_and_a_meaning():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if not row.split("|")[2].strip()] == []
    assert [row for row in rows if not row.split("|")[4].strip()] == []
