from pathlib import Path

import pytest

from demo.processes import DemoError, claimed


def test_what_was_there_is_gone(tmp_path: Path) -> None:
    (tmp_path / "old.txt").touch()
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with claimed(tmp_path):
        assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_a_second_demo_is_told_to_wait_and_touches_nothing(tmp_path: Path) -> None:
    with claimed(tmp_path):
        (tmp_path / "counts.json").touch()
        with pytest.raises(DemoError, match=f"another demo uses {tmp_path}: wait"), claimed(tmp_path):
            pass
        assert (tmp_path / "counts.json").exists()
