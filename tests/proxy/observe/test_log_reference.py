"""docs/log.md, and the events that it is made from."""

from pathlib import Path

from proxy.observe.log_reference import events, reference

PAGE = Path(__file__).parents[3] / "docs/log.md"


def test_page_is_as_the_code_has_it() -> None:
    assert PAGE.read_text() == reference(), "docs/log.md is not as the code has it: run `make references`"


def test_events_of_all_kinds_of_calls_are_found() -> None:
    """A literal, a constant of the module, an argument of `warn_of_passed_over`, an event whose level varies."""
    levels = {event.name: event.level for of_section in events().values() for event in of_section}
    assert levels["serving"] == "info"
    assert levels["a changed value needs a restart to take effect"] == "warning"
    assert levels["a holder is passed over: its token opens nothing"] == "warning"
    assert levels["limits begin with empty buckets, which fill from now on"] == "info, warning"


def test_events_name_nothing_that_varies() -> None:
    for of_section in events().values():
        for event in of_section:
            assert "{" not in event.name
            assert "|" not in event.name
