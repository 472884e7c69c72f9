import msgspec
import pytest

from accesslog.record import AnyLine, HeartbeatLine, LossLine
from proxy.config.sections import AccessLogSettings as Section
from proxy.observe.access_log import open_access_log
from proxy.observe.log_lines import AddressKeyError, LineSpan
from proxy.observe.log_writer import alive_name
from tests.access_log_files import closed_files, content_of
from tests.proxy.observe.log_disk import BOOT

SPAN = LineSpan(1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 1_000_000_000, 9_000_000_000)


def lines(folder):
    return [
        msgspec.json.decode(line, type=AnyLine)
        for file in closed_files(folder)
        for line in content_of(file).splitlines()
    ]


def test_without_a_folder_nothing_is_written(tmp_path):
    log = open_access_log(Section(), "east")
    log.heartbeat(SPAN, last=True)
    assert log.close()
    assert (log.lines, log.files) == (1, None)


def test_a_new_run_says_that_the_one_before_was_killed(tmp_path):
    (tmp_path / alive_name("east", BOOT)).touch()
    log = open_access_log(Section(dir=tmp_path), "east")
    log.heartbeat(SPAN, last=True)
    assert log.close()
    loss, beat = lines(tmp_path)
    assert isinstance(loss, LossLine)
    assert (loss.of_boot, loss.cause, loss.lost_lines) == (BOOT, "killed", None)
    assert isinstance(beat, HeartbeatLine)
    assert beat.proxy_version
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_key_that_cannot_be_used_is_an_error(tmp_path):
    with pytest.raises(AddressKeyError, match="no-key"):
        open_access_log(Section(dir=tmp_path, address_key=tmp_path / "no-key"), "east")
