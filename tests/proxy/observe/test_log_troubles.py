from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.observe.log_files import DELETED_INTERVAL_NS, DeletedLog
from proxy.observe.log_writer import LogTrouble
from tests.proxy.observe.log_disk import Disk


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [("disk", "access_log_losing"), ("queue", "access_log_losing"), ("retention", "access_log_not_deleted")],
)
def test_each_trouble_is_a_degraded_state_until_it_is_over(tmp_path: Path, trouble: LogTrouble, cause: str) -> None:
    disk = Disk(tmp_path / "log")
    assert list(disk.files.degraded()) == []
    disk.writer.tell(trouble, "No space left")
    (state,) = disk.files.degraded()
    assert (state.cause, "No space left" in state.reason) == (cause, True)
    disk.writer.tell(trouble, None)
    assert list(disk.files.degraded()) == []
    assert disk.files.close(10)


def test_deleted_files_are_told_once_and_then_summed_up():
    now = [0]
    log = DeletedLog(lambda: now[0])
    with capture_logs() as logs:
        log.deleted(1, 100)
        log.deleted(2, 200)
        now[0] = DELETED_INTERVAL_NS
        log.deleted(3, 300)
    assert [(line["files"], line["bytes"]) for line in logs] == [(1, 100), (5, 500)]
