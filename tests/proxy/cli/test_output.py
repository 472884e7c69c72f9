"""The file of `--output`."""

from pathlib import Path

import pytest

from proxy.cli.output import OutputError, check_output, write_output


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def test_a_new_file_is_written_and_nothing_is_left_beside_it(path: Path) -> None:
    write_output(path, "limits: é\n", force=False)
    assert path.read_text(encoding="utf-8") == "limits: é\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_stays_as_it_is(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(OutputError, match=r"is there already; .* --force"):
        check_output(path, force=False)
    with pytest.raises(OutputError, match="is there already"):
        write_output(path, "new", force=False)
    assert path.read_text() == "mine"
    assert list(path.parent.iterdir()) == [path]


def test_force_overwrites_also_behind_a_link(path: Path) -> None:
    real = path.with_name("real.yaml")
    real.write_text("old")
    path.symlink_to(real)
    write_output(path, "new", force=True)
    assert path.is_symlink()
    assert real.read_text() == "new"


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_file_is_never_replaced(tmp_path: Path, *, force: bool) -> None:
    with pytest.raises(OutputError, match="is not a file"):
        check_output(Path("/dev/null"), force=force)
    with pytest.raises(OutputError, match="is not a file"):
        check_output(tmp_path, force=force)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=f"there is no folder {tmp_path}/none"):
        check_output(tmp_path / "none" / "sluice.yaml", force=False)


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(path: Path) -> None:
    path.with_name(".sluice.yaml.new").mkdir()
    with pytest.raises(OutputError, match="cannot be written: Is a directory"):
        write_output(path, "new", force=False)
    assert not path.exists()
