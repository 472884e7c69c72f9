import pytest
from pydantic import ValidationError

from proxy.config.sections import AccessLogSettings


def test_files_are_safe_from_a_power_cut_and_kept_unless_something_else_is_said():
    section = AccessLogSettings()
    assert (section.fsync, section.retain_age, section.retain_size, section.address_key) == ("close", None, None, None)


def test_so_few_bytes_that_no_reader_could_keep_up_are_refused():
    with pytest.raises(ValidationError, match=r"less than 4 files of rotate_size \(1000\).*set at least 4000"):
        AccessLogSettings(rotate_size=1000, retain_size=3999)
    assert AccessLogSettings(rotate_size=1000, retain_size="4KB").retain_size == 4000


@pytest.mark.parametrize("wrong", [{"retain_age": "59s"}, {"fsync": "always"}, {"retain_size": "much"}])
def test_values_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError):
        AccessLogSettings(**wrong)


def test_the_log_has_half_of_its_disk_unless_a_size_is_named() -> None:
    assert AccessLogSettings().kept_size(1000 * 1024**3) == 500 * 1024**3
    assert AccessLogSettings(rotate_size="1GiB").kept_size(2 * 1024**3) == 4 * 1024**3
    assert AccessLogSettings(retain_size="10GB").kept_size(1000) == 10 * 1000**3
    assert AccessLogSettings(retain_size="none").kept_size(1000) is None


def test_processes_share_the_size_of_one_folder() -> None:
    settings = AccessLogSettings(rotate_size="1MiB")
    assert settings.part_of(4).kept_size(1000 * 1024**3) == 125 * 1024**3
    assert settings.part_of(4).kept_size(1024**2) == 4 * 1024**2, "each keeps four files"
    assert AccessLogSettings(retain_size="10GB").part_of(2).kept_size(1000) == 5 * 1000**3
    assert AccessLogSettings(retain_size="none").part_of(2).kept_size(1000) is None
