import pytest

from accesslog.file_names import SUFFIXES
from proxy.observe.access_log import new_boot_id
from proxy.observe.log_writer import LogName, OwnFiles, alive_name


def test_a_run_finds_its_own_names_again(tmp_path):
    boots = sorted(new_boot_id() for _ in range(2))
    numbers = (2, 999_999, 1_000_000)
    names = [LogName(boot, number, form) for boot in boots for number in numbers for form in sorted(SUFFIXES)]
    for name in names:
        (tmp_path / name.closed("a.b")).touch()
        (tmp_path / name.unfinished("a.b")).touch()
        (tmp_path / alive_name("a.b", name.boot_id)).touch()
    own = OwnFiles(tmp_path, "a.b")
    assert [name for name, _ in own.closed()] == [name for name, _ in own.unfinished()] == names
    assert [boot for boot, _ in own.alive()] == boots


@pytest.mark.parametrize("other", ["a", "a.b-c", "axb", "a.b-20261121T112900-0a1b2c3d"])
def test_files_of_other_proxies_are_none_of_its_own(tmp_path, other):
    name = LogName("20261121T112900-0a1b2c3d", 0, "none")
    (tmp_path / name.closed(other)).touch()
    (tmp_path / name.unfinished(other)).touch()
    (tmp_path / alive_name(other, name.boot_id)).touch()
    own = OwnFiles(tmp_path, "a.b")
    assert own.closed() + own.unfinished() + own.alive() == []
