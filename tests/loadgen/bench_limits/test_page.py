import pytest

from loadgen.bench_limits import page
from loadgen.bench_limits.page import COMMAND, section


@pytest.mark.parametrize("about", ["publish", "dispatch"])
def test_the_section_holds_the_table_the_command_and_the_machine(about):
    text = section(about, "| the table |")
    assert text.startswith(f"## {about.capitalize()} limits: the broker's own, and Sluice's\n")
    assert "| the table |" in text
    assert f"`{COMMAND}`" in text
    assert "Sluice's hot modules " in text
    assert max(len(line) for line in text.splitlines()) <= 130


def test_the_machine_is_told_with_its_congestion_control_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_CONGESTION", tmp_path / "tcp_congestion_control")
    assert page.congestion() == ""
    (tmp_path / "tcp_congestion_control").write_text("reno\n")
    assert page.congestion() in page.machine()
    assert page.congestion() == ", TCP's congestion control reno"
