"""The planted logs of the end-to-end test: proxy id → what its files hold and what the report must say of it."""

from datetime import UTC, datetime, timedelta

import msgspec

from accesslog.record import LimitLine
from tests.compliance.planted import PlantedLog, planted, topic_of, write_file


def write_scenarios(folder):
    """All of them, each in files of its own. They end at many times, so all but the silent ones end in order."""
    for log in (
        planted("exact", 30),
        over_by_one(),
        at_the_edge(),
        starved(),
        changed(passed_after=50, proxy_id="changed"),
        changed(passed_after=59, proxy_id="changed-and-over"),
        unlimited(),
        only_observed(),
        rejecting(),
        refusing(),
        declared(),
        bypassed(),
        byte_bound(),
        batches(),
        in_no_time(),
        stepped_clock(passed=100, proxy_id="stepped"),
        stepped_clock(passed=400, proxy_id="stepped-and-over"),
        held(),
        midnight(),
        hostile(),
        ahead_between(),
        of_a_newer_proxy(),
        bypassed_without_lines(),
        with_a_newer_line(),
        alone(),
        at_the_end_of_time(),
        with_system_topics(),
        changed_elsewhere(),
        taken_away_and_set_again(),
        changed_in_vain(),
        removed(),
    ):
        write_file(folder, f"{log.proxy_id}.jsonl", ended(log).encoded())
    for log in in_a_fleet():
        write_file(folder, f"{log.proxy_id}.jsonl.zst", ended(log).encoded())
    for log in (without_heartbeats(), planted("silent", 30)):
        write_file(folder, f"{log.proxy_id}.jsonl", log.encoded())
    write_lost_file(folder, planted("lost", 30))
    write_lost_file(folder, far_over_after_a_gap())
    write_duplicates(folder)
    write_torn(folder)
    write_restarted(folder)
    write_killed(folder)
    write_cut_off(folder)
    write_torn_tail(folder)
    write_conflict(folder)


def in_a_fleet():
    """Two members that hold a limit of 100/s together, and a proxy that has it to itself for two seconds.

    The second member is cut off for two seconds. From the tenth second on, for five, the coordinator grants each of
    them four fifths; each keeps its share, and nobody the limit.
    """
    logs = [PlantedLog(proxy_id=f"fleet-{name}", topic=topic_of("fleet")) for name in "abc"]
    for log in logs:
        share = 0.0
        for second in range(15):
            cut_off = log is logs[1] and 4 <= second < 6
            before, share = share, 0.02 if cut_off else 0.8 if second >= 10 else 0.5
            if log is logs[2]:
                share = 1.0
            elif share != before:
                log.share(before, share, "isolated" if cut_off else "rejoined" if before == 0.02 else "granted")
            burst = 0 if second else 5
            passed = round(100 * share) + burst if share < 1 else 100 if second in {7, 8} else 0
            log.interval(passed, limit_messages=100 * share)
            if share < 1:
                log.shared(passed, share)
            elif passed:
                log.limit(passed, throttled_ms=0.0)
            log.beat()
    return logs


def ahead_between():
    """The wall clock goes an hour ahead between two lines; no number and no length of time is missing."""
    log = planted("ahead-between", 10)
    log.ahead_s += 3600
    for _ in range(10):
        log.tick(100)
    return log


class AuditLine(msgspec.Struct, tag_field="kind", tag="audit", kw_only=True):
    """A kind that only a newer proxy knows."""

    v: int = 1
    proxy_id: str
    boot_id: str
    seq: int
    start: datetime
    end: datetime
    mono_us: int
    duration_ms: float
    verdict: str = "new"


def of_a_newer_proxy():
    """One line of a kind that nobody here knows."""
    log = planted("newer", 10)
    log.add(AuditLine)
    log.beat()
    return log


def with_a_newer_line():
    """One line of the limit has a version that nobody here knows."""
    log = planted("newer-line", 20)
    at = next(number for number, line in enumerate(log.lines) if number > 30 and isinstance(line, LimitLine))
    log.lines[at] = msgspec.structs.replace(log.lines[at], v=2)
    return log


def alone():
    """A limit passes messages for longer than lines may be late, and no stream has a line."""
    log = PlantedLog(proxy_id="alone", topic=topic_of("alone"))
    for _ in range(100):
        log.limit(50, throttled_ms=0.0)
        log.beat()
    return log


def at_the_end_of_time():
    """The wall clock is stepped into the last minute that there is."""
    log = planted("end-of-time", 10)
    log.ahead_s = (datetime(9999, 12, 31, 23, 59, 20, tzinfo=UTC) - log._head["start"]).total_seconds()
    for _ in range(30):
        log.tick(100)
    return log


def bypassed_without_lines():
    """Streams say that they are under 100/s and pass 500/s; the limit has no line at all."""
    log = PlantedLog(proxy_id="no-lines", topic=topic_of("no-lines"))
    for _ in range(20):
        log.interval(500)
        log.beat()
    return log


def with_system_topics():
    """A namespace's total of 20/s, 15/s on a topic of it and 15/s on Pulsar's own, which no limit counts."""
    log = PlantedLog(proxy_id="system", topic="persistent://acme/system/new")
    for _ in range(40):
        log.interval(15, namespace="system", limit_level="namespace", limit_messages=20.0)
        own = {"topic": "persistent://acme/system/__change_events", "stream_id": 2, "exempt": True}
        log.interval(15, namespace="system", limit_level="", limit_messages=None, **own)
        log.limit(15, rate=20.0, level="namespace", name="acme/system", namespace="system", throttled_ms=0.0)
        log.beat()
    return log


def changed_elsewhere():
    """Somebody sets a value that another one has precedence over."""
    log = planted("elsewhere", 10)
    log.change(setting="topic_of_namespace", name="acme/orders", before=None, after='{"messages": 50}')
    for _ in range(10):
        log.tick(100)
    return log


def taken_away_and_set_again():
    """Somebody removes the limit, and at once sets it as it was."""
    log = planted("set-again", 10)
    log.change(before='{"messages": 100}', after=None)
    log.change(before=None, after='{"messages": 100}')
    for _ in range(10):
        log.tick(100)
    log.lines = [
        msgspec.structs.replace(line, source="topic rest") if hasattr(line, "source") else line for line in log.lines
    ]
    return log


def changed_in_vain():
    """The limit is set to 50/s after five seconds, and the proxy goes on with 100/s."""
    log = planted("in-vain")
    for second in range(10):
        if second == 5:
            log.change(before='{"publishThrottlingRateInMsg": 100}', after='{"publishThrottlingRateInMsg": 50}')
        log.tick(110 if second == 0 else 100, source="topic rest")
    return log


def removed():
    """The limit is removed after five seconds; its stream goes on."""
    log = planted("removed")
    for second in range(5):
        log.tick(110 if second == 0 else 100, source="topic rest")
    log.change(before='{"publishThrottlingRateInMsg": 100}', after=None)
    for _ in range(5):
        log.interval(500, limit_level="", limit_messages=None, limit_levels="")
        log.beat()
    return log


def write_torn_tail(folder):
    """The last lines of a run that never ended are torn: of 500 that passed where 110 might, only a stream tells."""
    log = planted("torn-tail", 10)
    log.tick(500)
    # It is the last of all: nobody goes on, so it is not silent.
    log.begin += timedelta(days=3)
    log.lines = [
        msgspec.structs.replace(line, start=line.start + timedelta(days=3), end=line.end + timedelta(days=3))
        for line in log.lines
    ]
    whole, torn = log.encoded()[:-2], [line[:60] for line in log.encoded()[-2:]]
    write_file(folder, "torn-tail.jsonl", [*whole, *torn])


def write_conflict(folder):
    """Two lines under one number, and they are not the same."""
    log = ended(planted("conflict", 10))
    write_file(folder, "conflict-1.jsonl", log.encoded())
    other = msgspec.structs.replace(log.lines[16], passed_messages=700)
    write_file(folder, "conflict-2.jsonl", [msgspec.json.encode(other)])


def over_by_one():
    """One message more than burst, rate and one entry together."""
    log = planted("over", 20)
    log.tick(102)
    for _ in range(9):
        log.tick(100)
    return log


def far_over_after_a_gap():
    log = planted("lost-and-over", 20)
    log.tick(150)
    return log


def at_the_edge():
    """As much as is allowed."""
    log = planted("edge", 20)
    log.tick(101)
    return log


def starved():
    """Five percent below the limit for three seconds, in the middle, across a boundary of ten seconds."""
    log = planted("starved", 18)
    for second in range(20):
        log.tick(95 if second < 3 else 100)
    return log


def changed(passed_after, proxy_id):
    """100/s becomes 50/s in the middle of a second: two lines for that second, no window spans both."""
    log = planted(proxy_id, 10)
    head = log._head
    middle = head["start"] + timedelta(milliseconds=500)
    log.limit(50, end=middle, duration_ms=500.0, throttled_ms=500.0)
    log.limit(passed_after // 2, rate=50.0, start=middle, duration_ms=500.0, throttled_ms=500.0)
    log.interval(50 + passed_after // 2)
    log.beat()
    for _ in range(10):
        log.tick(passed_after, rate=50.0)
    return log


def unlimited():
    log = PlantedLog(proxy_id="unlimited", topic=topic_of("unlimited"))
    for _ in range(3):
        log.interval(5000, limit_level="", limit_messages=None)
        log.limit(5000, rate=None, throttled_ms=0.0)
        log.beat()
    return log


def only_observed():
    """Everything passes, five times the limit; its line says what enforcing would have done, and that was little."""
    log = PlantedLog(proxy_id="observed", topic=topic_of("observed"))
    for _ in range(12):
        log.interval(500, limit_level="", limit_messages=None, would_hold_messages=400, would_throttle_ms=1000.0)
        log.limit(20, mode="observe")
        log.beat()
    return log


def rejecting():
    """What is over the limit is refused: offered, not passed, not held, not owed."""
    log = PlantedLog(proxy_id="rejecting", topic=topic_of("rejecting"))
    for second in range(12):
        passed = 110 if second == 0 else 100
        rejected = {"rejected_messages": 300 - passed, "rejected_bytes": 100 * (300 - passed)}
        log.interval(passed, offered=300, held_messages=0, held_bytes=0, **rejected)
        log.limit(passed, mode="reject", throttled_ms=0.0, rejected_messages=300 - passed)
        log.beat()
    return log


def refusing():
    """Lookups and a consumer are refused, on two connections; the limit is kept."""
    log = planted("refusing", 5)
    log.reject(7)
    log.reject(3, connection_id=2)
    log.reject(1, reason="blocked", detail="by order")
    log.beat()
    return log


def declared():
    """The disk was full: two numbers are missing, and the proxy says so, in heartbeats and in a line of its own."""
    log = planted("declared", 5)
    lost = log.lines[-3:-1]
    log.lines[-1] = msgspec.structs.replace(log.lines[-1], dropped_lines=2)
    log.loss("boot-1", 2, cause="disk", detail="No space left", first_seq=lost[0].seq, last_seq=lost[1].seq)
    for _ in range(3):
        log.tick(100)
        log.lines[-1] = msgspec.structs.replace(log.lines[-1], dropped_lines=2)
    log.lines = [line for line in log.lines if line not in lost]
    return log


def bypassed():
    """The limiter's account is right, but the streams passed twice as much."""
    log = PlantedLog(proxy_id="bypassed", topic=topic_of("bypassed"))
    for burst in (10, *[0] * 9):
        log.interval(200 + 2 * burst)
        log.limit(100 + burst)
        log.beat()
    return log


def byte_bound():
    """1000 messages/s and 1000 bytes/s with messages of 100 bytes: ten a second is all that is owed."""
    log = PlantedLog(proxy_id="bytes", topic=topic_of("bytes"))
    for burst in (1, *[0] * 19):
        log.tick(10 + burst, rate=1000.0, limit_bytes=1000.0, burst_bytes=100.0)
    return log


def batches():
    """10/s in batches of 30: one second with a batch, two that pay for it."""
    log = PlantedLog(proxy_id="batches", topic=topic_of("batches"))
    for second in range(30):
        batch = 0 if second % 3 else 30
        log.tick(batch, rate=10.0, largest_entry_messages=batch, passed_entries=min(1, batch))
    return log


def in_no_time():
    """One entry passes, and somebody waits, in a span of no length, within which the wall clock goes back a minute."""
    log = planted("in-no-time", 12)
    moment = log._head["start"]
    log.ahead_s -= 60
    span = {"start": moment, "end": moment - timedelta(minutes=1), "duration_ms": 0.0, "throttled_ms": 1.0}
    log.interval(1, **span)
    log.limit(1, **span)
    for _ in range(12):
        log.tick(100)
    return log


def stepped_clock(passed, proxy_id):
    """The wall clock jumps five seconds ahead within one line; one second has gone by."""
    log = planted(proxy_id, 10)
    start = log._head["start"]
    log.ahead_s += 5
    log.interval(passed, start=start)
    log.limit(passed, start=start)
    log.beat(start=start)
    return log


def without_heartbeats():
    log = PlantedLog(proxy_id="without-heartbeats", topic=topic_of("without-heartbeats"))
    for burst in (10, *[0] * 4):
        log.limit(100 + burst)
        log.interval(100 + burst)
        log.second += 1
    return log


def held():
    """A stream that holds messages at the end and one that dropped what it held."""
    log = PlantedLog(proxy_id="held", topic=topic_of("held"))
    log.interval(10, offered=15)
    log.interval(0, offered=7, stream_id=2)
    log.beat()
    log.interval(3, offered=0, held_messages=2, held_bytes=200)
    log.interval(0, offered=0, stream_id=2, held_messages=0, held_bytes=0, dropped_messages=7, dropped_bytes=700)
    log.beat(last=True)
    return log


def midnight():
    log = PlantedLog(proxy_id="midnight", topic=topic_of("midnight"))
    log.begin = log.begin.replace(hour=23, minute=59, second=58)
    for passed in (1, 10, 100, 1000):
        log.interval(passed)
        log.beat()
    return log


HOSTILE_TOPIC = "persistent://acme/orders/<script>alert(1)</script>\"'&amp;"


def hostile():
    """Names are the client's."""
    log = PlantedLog(proxy_id="hostile", topic=HOSTILE_TOPIC)
    log.interval(1, tenant='=HYPERLINK("http://x")', namespace="-legit.name", throttled_ms=9e9)
    log.limit(1, throttled_ms=0.0)
    log.beat()
    return log


def write_lost_file(folder, log):
    """The middle one of three files is not there."""
    lines = ended(log).encoded()
    write_file(folder, f"{log.proxy_id}-1.jsonl", lines[:30])
    write_file(folder, f"{log.proxy_id}-3.jsonl", lines[36:])


def write_duplicates(folder):
    lines = ended(planted("twice", 10)).encoded()
    write_file(folder, "twice-1.jsonl", lines)
    write_file(folder, "twice-2.jsonl", lines[5:15])


def write_torn(folder):
    """Killed while writing the last heartbeat, and not started again."""
    lines = planted("torn", 10).encoded()
    write_file(folder, "torn.jsonl", lines)
    with (folder / "torn.jsonl").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 20)


def write_restarted(folder):
    """Each run begins with a full bucket of its own."""
    first = ended(planted("restarted", 10))
    second = planted("restarted", 10, boot_id="boot-2", begin=first.begin + timedelta(seconds=10))
    write_file(folder, "restarted-1.jsonl", first.encoded())
    write_file(folder, "restarted-2.jsonl", ended(second).encoded())


def ended(log):
    """The proxy came to an orderly end."""
    log.lines[-1] = msgspec.structs.replace(log.lines[-1], last=True)
    return log


def write_cut_off(folder):
    """Three times the limit in one second; the file with a third of it was not collected, and is the last of its run.

    The next run is whole, and knows of nothing that was lost: the one before had come to an orderly end.
    """
    first = planted("cut-off", 10)
    second = ended(planted("cut-off", 10, boot_id="boot-2", begin=first.begin + timedelta(seconds=15)))
    first.tick(300)
    ended(first)
    write_file(folder, "cut-off-1.jsonl", first.encoded()[:-3])
    write_file(folder, "cut-off-2.jsonl", second.encoded())


def write_killed(folder):
    """Killed; no number is missing, but the next run says that nobody knows what is lost behind the last line."""
    first = planted("killed", 10)
    second = planted("killed", boot_id="boot-2", begin=first.begin + timedelta(seconds=30))
    second.loss("boot-1", None, first_seq=30)
    for burst in (10, *[0] * 4):
        second.tick(100 + burst)
    write_file(folder, "killed-1.jsonl", first.encoded())
    write_file(folder, "killed-2.jsonl", ended(second).encoded())
