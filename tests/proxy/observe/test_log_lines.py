from typing import cast

import msgspec

from accesslog.record import AnyLine, HeartbeatLine, LossLine, ShareLine
from limiter.limiter import Limiter, Scope
from limiter.token_bucket import Lease, Limit, rate
from proxy.observe.log_files import LogFiles
from proxy.observe.log_lines import (
    MOST_SHARES,
    LineSpan,
    LogLines,
    ShareChange,
    ShareLines,
    Writer,
    as_they_are,
    bursts_in_force,
)
from proxy.observe.log_writer import LineRun
from tests.proxy.conversation import RecordingFiles

SPAN = LineSpan(1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 1_000_000_000, 9_000_000_000)


def beat(lines):
    lines.add(HeartbeatLine, SPAN, dropped_lines=0, last=False)


def test_a_loss_is_declared_behind_the_lines_before_it_with_its_times_and_its_cause():
    files = RecordingFiles()
    lines = LogLines(Writer("p", "boot"), cast("LogFiles", files))
    beat(lines)
    files.losses.lose("disk", LineRun(3, 7, 9, SPAN.start_wall, SPAN.end_wall), "No space left")
    lines.declare((SPAN.end_wall, SPAN.end_mono))
    lines.declare((SPAN.end_wall, SPAN.end_mono))
    _, loss = [msgspec.json.decode(line, type=AnyLine) for line in files.data.splitlines()]
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
    lines.declare((SPAN.end_wall, SPAN.end_mono))
    assert files.data == b""
    assert lines.close(1)
    assert b'"kind":"loss"' in files.data


def share(limiter, before, after, cause="granted"):
    return ShareChange("front", limiter, "messages", before, after, 1 << 60, "sluice-0", 4, cause)


def share_lines(files, changes):
    """The lines of some changes of shares within one heartbeat."""
    lines = LogLines(Writer("p", "boot"), cast("LogFiles", files))
    shares = ShareLines(lines, as_they_are)
    for change in changes:
        shares.add(SPAN, change)
    shares.turn()
    shares.add(SPAN, share("publish tenant next", 0, 1))
    lines.flush()
    return [msgspec.json.decode(line, type=ShareLine) for line in files.data.splitlines()]


def test_a_share_has_a_line_with_both_values_and_its_cause():
    first, _ = share_lines(RecordingFiles(), [share("publish tenant a b", 250_000, 500_000, "rejoined")])
    assert (first.fleet, first.direction, first.level, first.name) == ("front", "publish", "tenant", "a b")
    assert (first.unit, first.share_before, first.share_after) == ("messages", 0.25, 0.5)
    assert (first.epoch, first.coordinator, first.members, first.cause) == (1 << 60, "sluice-0", 4, "rejoined")
    assert first.left_out == 0


def test_of_5000_changed_shares_some_have_lines_and_all_count():
    lines = share_lines(RecordingFiles(), [share(f"publish topic {number}", 0, 1) for number in range(5000)])
    assert [line.name for line in lines] == [*map(str, range(MOST_SHARES)), "4999", "next"]
    assert [line.left_out for line in lines] == [*[0] * MOST_SHARES, 5000 - MOST_SHARES - 1, 0]


def test_that_a_proxy_is_cut_off_or_back_is_told_however_much_changes():
    many = [share(f"publish topic {number}", 0, 1) for number in range(150)]
    away = [share(f"publish topic {number}", 1, 2, "isolated") for number in range(150)]
    lines = share_lines(RecordingFiles(), [*many, *away, share("publish topic 7", 2, 2, "rejoined")])
    shares = [(line.cause, line.name, line.left_out) for line in lines[MOST_SHARES:]]
    # What is left out at the heartbeat has been told of by then.
    assert shares == [("isolated", "0", 50), ("rejoined", "7", 149), ("granted", "next", 0)]


def test_share_of_a_burst_is_exact_and_at_least_a_token():
    """The bucket keeps no more when its share becomes smaller, so the judge must not expect more."""
    limit = Limit(messages=rate(40, burst=4), size=rate(1000, burst=100))
    limiter = Limiter(Scope("publish", "topic", "t", "", ""), limit, "", 0, Lease(0, 10**12), lambda _limiter: None)
    limiter.share((377_875, 500_000), (None,) * 4, 0)
    assert bursts_in_force(limiter) == (1.5115, None, 50.0, None)
    limiter.share((139_000, 0), (None,) * 4, 0)
    assert bursts_in_force(limiter) == (1.0, None, 1.0, None)
    alone = Limiter(Scope("publish", "topic", "t", "", ""), limit, "", 0)
    assert bursts_in_force(alone) == (4.0, None, 100.0, None)
