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
