import pytest

from loadgen.bench_limits.page import COMMAND, section


@pytest.mark.parametrize("about", ["publish", "dispatch"])
def test_the_section_holds_the_table_the_command_and_the_machine(about):
    text = section(about, "| the table |")
    assert text.startswith(f"## {about.capitalize()} limits: the broker's own, and Sluice's\n")
    assert "| the table |" in text
    assert f"`{COMMAND}`" in text
    assert "Sluice's hot modules " in text
    assert max(len(line) for line in text.splitlines()) <= 130
