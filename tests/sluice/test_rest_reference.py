"""docs/rest.md."""

from pathlib import Path

from sluice.rest_reference import described, reference

PAGE = Path(__file__).parents[2] / "docs/rest.md"


async def test_page_is_as_a_running_sluice_has_it() -> None:
    page = await described()
    assert PAGE.read_text() == reference(page), "docs/rest.md is not as the code has it: run `make references`"
    for path, operations in page["paths"].items():
        for method in operations:
            assert PAGE.read_text().count(f"| `{method.upper()} {path}` |") == 1
