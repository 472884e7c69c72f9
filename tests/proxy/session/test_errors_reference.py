"""docs/errors.md, and the refusals that it is made from."""

from pathlib import Path

from proxy.session.errors_reference import reference, refusals
from proxy.session.events import CloseReason

PAGE = Path(__file__).parents[3] / "docs/errors.md"


def test_page_is_as_the_code_has_it() -> None:
    assert PAGE.read_text() == reference(), "docs/errors.md is not as the code has it: run `make references`"
    assert all(f"| `{reason}` |" in PAGE.read_text() for reason in CloseReason)


def test_refusals_of_all_forms_are_found() -> None:
    """A literal, one with names in it, a constant."""
    texts = {text for _code, text in refusals()}
    assert "this producer or consumer is already being closed" in texts
    assert "… id … of this connection is in use" in texts
    assert "all memory that may be kept for this client is in use (client_memory)" in texts
