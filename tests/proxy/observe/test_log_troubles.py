from typing import get_args

from structlog.testing import capture_logs

from proxy.observe.log_files import DELETED_INTERVAL_NS, DeletedLog, operator_notices, tell_trouble
from proxy.observe.log_writer import LogTrouble


def test_every_trouble_has_its_words():
    with capture_logs() as said:
        for trouble in get_args(LogTrouble):
            tell_trouble(trouble, "No space left")
            tell_trouble(trouble, None)
    assert [line["log_level"] for line in said] == ["error", "info"] * 3
    assert len({line["event"] for line in said}) == 6
    assert said[0]["error"] == "No space left"


def test_deleted_files_are_told_once_and_then_summed_up():
    now = [0]
    log = DeletedLog(lambda: now[0])
    with capture_logs() as said:
        log.deleted(1, 100)
        log.deleted(2, 200)
        now[0] = DELETED_INTERVAL_NS
        log.deleted(3, 300)
    assert [(line["files"], line["bytes"]) for line in said] == [(1, 100), (5, 500)]


def test_the_operator_is_told_of_both():
    notices = operator_notices()
    with capture_logs() as said:
        notices.trouble("disk", "full")
        notices.deleted(1, 100)
    assert len(said) == 2
