"""docs/commands.md says what `sluice --help` says."""

from pathlib import Path

from typer.core import TyperOption

from sluice.reference import all_commands, parameters, reference

PAGE = Path(__file__).resolve().parents[2] / "docs/commands.md"


def test_the_page_is_fresh() -> None:
    """Remedy: python -m sluice.reference > docs/commands.md."""
    assert PAGE.read_text() == reference(), "docs/commands.md is not as the code has it: run `make references`"


def test_every_command_is_there_with_all_its_options_and_their_meaning() -> None:
    sections = {part.partition("\n")[0]: part for part in reference().split("\n## ")[1:]}
    assert set(sections) == {name for name, _ in all_commands()}
    assert "sluice serve" in sections
    for name, command in all_commands():
        assert command.help, name
        for option in (each for each in parameters(command) if isinstance(each, TyperOption)):
            assert f"- `{option.opts[0]}`" in sections[name]
            assert option.help, f"{name} {option.opts[0]}"
