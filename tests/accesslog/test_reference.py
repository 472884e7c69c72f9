"""docs/access-log.md says what the types say."""

from pathlib import Path

import msgspec

from accesslog.record import BUCKETS, Kinds, upper_bound_ms
from accesslog.reference import reference

PAGE = Path(__file__).resolve().parents[2] / "docs/access-log.md"


def test_the_page_is_fresh():
    """Remedy: python -m accesslog.reference > docs/access-log.md."""
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "docs/access-log.md is not as the code has it: run `make references`"
    )


def test_every_field_of_every_kind_has_its_row():
    sections = {name: f"\n## {name}\n" for name in Kinds.BY_NAME}
    page = reference()
    assert [name for name, title in sections.items() if title not in page] == []
    fields = {field.name for kind in Kinds.BY_NAME.values() for field in msgspec.structs.fields(kind)}
    assert [name for name in fields if f"\n| `{name}` | " not in page] == []


def test_every_row_has_a_type_and_a_meaning():
    rows = [line.replace(r"\|", "").split("|") for line in reference().splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if len(row) != 6 or not row[2].strip() or not row[4].strip()] == []


def test_the_last_bound_of_the_delays_is_on_the_page():
    assert f"| {BUCKETS - 2} | {upper_bound_ms(BUCKETS - 2):,g} |" in reference()
