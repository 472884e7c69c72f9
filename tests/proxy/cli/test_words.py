"""Numbers, durations and names as people read them."""

import json

import msgspec
import pytest
from rich.console import Console

from protocol.printable import printable, printable_json
from proxy.cli.doctor import _tell
from proxy.cli.policy_tables import audit_lines
from proxy.cli.top_view import Rejecting, Waiting, WouldHold, limit, obstacle, rate, short_topic, since, size, span, who
from proxy.stream_comparison import Looked
from tests.proxy.console_states import state

TOPIC = "persistent://acme/shop/orders"


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.5, "0.5"),
        (9.96, "10.0"),
        (12.4, "12"),
        (3.0, "3"),
        (1234.5, "1,234"),
        (1e6, "1,000,000"),
    ],
)
def test_rates(per_s: float | None, text: str) -> None:
    assert rate(per_s) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1550, "1.6 kB"),
        (99_940, "99.9 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes(number: float, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0.4, "0ms"),
        (999.0, "999ms"),
        (3210.0, "3.2s"),
        (250_000.0, "4m10s"),
        (7_500_000.0, "2h05m"),
        (273_600_000.0, "3d04h"),
    ],
)
def test_durations(ms: float | None, text: str) -> None:
    assert span(ms) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(1500.0, "1,500/s"), (1.0, "1/s"), (0.5, "30/min"), (1 / 3600, "1/h"), (1 / 86400, "1/d"), (1.5, "1.5/s")],
)
def test_slow_limits_are_told_by_the_minute_hour_or_day(per_s: float, text: str) -> None:
    assert limit(per_s) == text


def test_names_cannot_command_a_terminal() -> None:
    """Clients choose the names of topics and producers."""
    assert printable("a\x1b[2Jb\nc\x07\u202ed") == "a\\x1b[2Jb\\nc\\x07\\u202ed"
    assert printable("\x9b\u2028\u2029\u2066\ud800") == "\\x9b\\u2028\\u2029\\u2066\\ud800"
    assert printable("grün-日本") == "grün-日本"


def test_topics_are_shown_without_the_usual_domain() -> None:
    assert short_topic(TOPIC) == "acme/shop/orders"
    assert short_topic("non-persistent://a/b/c") == "non-persistent://a/b/c"


def test_a_stream_is_known_by_subscription_or_producer_or_number() -> None:
    assert who(state(producer_name="p")) == "p"
    assert who(state(producer_name="", subscription="s")) == "s"
    assert who(state(producer_name="", stream_id=7)) == "#7"


def test_the_limit_that_rejects_comes_first() -> None:
    held, rejecting = Waiting("tenant", "acme", 500.0, None, 10.0), Rejecting("topic", TOPIC, 100.0, None)
    rejected = state(topic=TOPIC, waits_on=held, rejected_by=rejecting)
    assert obstacle(rejected, 12.0) == "rejected 12/s: topic 100/s; held: tenant acme 500/s"
    assert obstacle(rejected, 0.0) == obstacle(rejected) == "tenant acme 500/s"
    assert obstacle(state(rejected_by=None), 3.0) == "rejected 3/s", "the limit is gone"


def test_the_obstacle_is_named_with_its_value() -> None:
    by_both = Waiting("namespace", "acme/shop", 500.0, 1e6, 10.0)
    assert obstacle(state(waits_on=by_both)) == "namespace acme/shop 500/s, 1.0 MB/s"
    assert obstacle(state(topic=TOPIC, waits_on=Waiting("topic", TOPIC, 0.5, None, 1.0))) == "topic 30/min"
    assert obstacle(state(waits_on=Waiting("proxy", "", None, 200.0, 1.0))) == "proxy 200 B/s"


def test_a_relative_limit_is_named_with_its_parts() -> None:
    waits_on = Waiting("topic", TOPIC, 110.0, 2200.0, 1.0, 100.0, 2000.0)
    assert obstacle(state(topic=TOPIC, waits_on=waits_on)) == (
        "topic 110/s (10/s + published), 2.2 kB/s (200 B/s + published)"
    )


def test_what_is_only_observed_is_told_where_nothing_is_held() -> None:
    assert obstacle(state(observed=WouldHold(1200))) == "observed: would hold 1,200"
    assert obstacle(state(observed=WouldHold(0))) == ""
    assert obstacle(state()) == ""


def test_permits_that_are_withheld_are_a_reason_where_nothing_is_held() -> None:
    by = Waiting("topic", TOPIC, 10.0, None, 3200.0)
    withheld = state(topic=TOPIC, permits_withheld=1980, permits_at_broker=20, permits_wait_on=by)
    assert obstacle(withheld) == "1,980 permits withheld (at the broker 20): topic 10/s"
    assert since(withheld) == "3.2s"
    overdrawn = state(topic=TOPIC, permits_withheld=5, permits_at_broker=-4, permits_wait_on=by)
    assert obstacle(overdrawn) == "5 permits withheld: topic 10/s"
    held = state(topic=TOPIC, held_for_ms=10.0, waits_on=Waiting("proxy", "", 5.0, None, 1.0), permits_wait_on=by)
    assert (obstacle(held), since(held)) == ("proxy 5/s", "10ms")


def test_no_table_and_no_list_passes_on_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    """Writers of a fleet's topic choose names in the audit log, the broker's clients those in the doctor's list."""
    odd = "\x9b2J\u202eops"
    change = {"at": "2026-01-01T00:00:00+00:00", "who": odd, "address": odd, "kind": "publish", "setting": "topic"}
    change |= {"name": odd, "origin": "tenant"}
    for part in audit_lines([{**change, "held": None, "words": odd}]):
        Console(width=200).print(part)
    _tell(Looked(1, 1, 0, [f"the broker has {odd}"]), everywhere=True)
    shown = capsys.readouterr().out
    assert shown.count("\\x9b2J\\u202eops") == 5
    assert not {"\x9b", "\u202e"} & set(shown)


def test_json_for_a_terminal_says_the_same_and_escapes_it() -> None:
    document = {"name": "\x9b2J\u202eops\U000e0001\U0001f600 é\n"}
    text = printable_json(msgspec.json.format(msgspec.json.encode(document)).decode())
    assert all(line.isprintable() for line in text.splitlines())
    assert json.loads(text) == document
    assert "\U0001f600 é" in text
