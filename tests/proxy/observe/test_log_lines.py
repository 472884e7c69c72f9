from typing import cast

import msgspec

from accesslog.record import HeartbeatLine, Line, LossLine
from proxy.observe.log_files import LogFiles
from proxy.observe.log_lines import LineSpan, LogLines, Writer
from proxy.observe.log_writer import LineRun
from tests.proxy.conversation import RecordingFiles

SPAN = LineSpan(1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 1_000_000_000)


def beat(lines):
    lines.add(HeartbeatLine, SPAN, dropped_lines=0, last=False)


def test_a_loss_is_declared_behind_the_lines_before_it_with_its_times_and_its_cause():
    files = RecordingFiles()
    lines = LogLines(Writer("p", "boot"), cast("LogFiles", files))
    beat(lines)
    files.losses.lose("disk", LineRun(3, 7, 9, SPAN.start_wall, SPAN.end_wall), "No space left")
    lines.declare(SPAN.end_wall)
    lines.declare(SPAN.end_wall)
    _, loss = [msgspec.json.decode(line, type=Line) for line in files.data.splitlines()]
    assert isinstance(loss, LossLine)
    assert (loss.seq, loss.of_boot, loss.cause, loss.detail) == (1, "boot", "disk", "No space left")
    assert (loss.lost_lines, loss.first_seq, loss.last_seq) == (3, 7, 9)
    assert (loss.lost_until - loss.lost_from).total_seconds() == 1
    assert loss.start == loss.end == loss.lost_until


def test_nothing_is_declared_while_it_would_be_lost_again_but_at_the_end_it_is_tried():
    files = RecordingFiles()
    files.is_writing = False
    lines = LogLines(Writer("p", "boot"), cast("LogFiles", files))
    files.losses.lose("disk", LineRun(1, 0, 0, 1, 1))
    lines.declare(SPAN.end_wall)
    assert files.data == b""
    assert lines.close(1)
    assert b'"kind":"loss"' in files.data
