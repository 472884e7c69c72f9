from loadgen.bench_limits.page import COMMAND, section


def test_the_section_holds_the_table_the_command_and_the_machine():
    text = section("| the table |")
    assert "| the table |" in text
    assert f"`{COMMAND}`" in text
    assert "Sluice's hot modules " in text
    assert max(len(line) for line in text.splitlines()) <= 130
