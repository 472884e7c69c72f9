import base64
import hashlib
import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from markupsafe import escape

from compliance.excerpt import Excerpt
from compliance.figures.facts import RateFacts, RefusalFacts, RoleFacts
from compliance.judging.facts import GapFacts, QuarantineFacts
from compliance.report.page import breakable, broken, render
from compliance.report.report import make_report
from compliance.report.subjects import between
from tests.compliance.judging.facts_made import (
    END,
    FIRST_LINE,
    containment_fact,
    doubt_fact,
    entitlement_fact,
    facts,
    limiter_fact,
    run_fact,
    topic_fact,
)
from tests.compliance.planted import BEGIN

HOSTILE = "<script>alert(1)</script>\"'&amp;{{ 7 * 7 }}"

MADE: tuple[dict[str, Any], ...] = (
    {},
    {"containment": [containment_fact(5.0)]},
    {"containment": [containment_fact(5.0)], "entitlement": [entitlement_fact(0.5)]},
)


def page(**more):
    return render(make_report(facts(**more)))


def rate_fact(**more):
    values: dict[str, Any] = {"proxy_id": "p", "direction": "publish", "level": "topic", "name": "t", "step_s": 1}
    flows = dict.fromkeys(("offered_messages", "offered_bytes", "passed_messages", "passed_bytes"), 1.0)
    limits = dict.fromkeys(("limit_messages", "limit_bytes", "burst_messages", "burst_bytes"))
    return RateFacts(**(values | {"step": 1} | flows | limits | more))


def test_an_excerpt_is_told():
    assert "An excerpt of the log" not in page()
    html = page(excerpt=Excerpt(begin=BEGIN, tenant="a<b"))
    assert "An excerpt of the log, from" in html
    assert ": a&lt;b alone, without limits that span tenants." in html


@pytest.mark.parametrize("verdict", ["compliant", "violated", "unknown", "no limit"])
def test_each_verdict_is_told_by_word_and_sign_not_by_colour_alone(verdict):
    made_of = {
        "compliant": {},
        "violated": {"containment": [containment_fact(5.0)], "entitlement": [entitlement_fact(0.5)]},
        "unknown": {"runs": [run_fact(coverage=0.5)]},
        "no limit": {"limiters": []},
    }[verdict]
    sign = {"compliant": "✓", "violated": "✗", "unknown": "?", "no limit": "○"}[verdict]
    assert f'<b aria-hidden="true">{sign}</b> {verdict}' in page(**made_of)


def test_a_role_s_limit_shows_whether_the_role_was_proved():
    role = RoleFacts(proxy_id="p", direction="publish", name="billing", is_proved=True, is_claimed=True)
    html = page(limiters=[limiter_fact(level="role", name="billing")], roles=[role])
    assert "publish · role (mixed) · p" in html
    assert "(mixed)" not in page(limiters=[limiter_fact(level="role", name="billing")])


def test_names_from_clients_never_become_markup():
    html = page(
        runs=[run_fact(proxy_id=HOSTILE), run_fact()],
        limiters=[limiter_fact(name=HOSTILE)],
        containment=[containment_fact(5.0, name=HOSTILE)],
        topics=[topic_fact(topic=HOSTILE, limit_level=HOSTILE)],
        quarantine=[QuarantineFacts(file=HOSTILE, reason=HOSTILE, lines=1, example=HOSTILE)],
        gaps=[GapFacts(proxy_id=HOSTILE, boot_id="b", after_seq=1, missing=1, until=END, behind=FIRST_LINE)],
        rates=[rate_fact(proxy_id=HOSTILE, name=HOSTILE)],
    )
    assert html.count("<script") == 1
    assert "&lt;script&gt;" in html
    assert "{{ 7 * 7 }}" in html


def test_the_page_needs_nothing_from_elsewhere():
    class Tags(HTMLParser):
        found: tuple[tuple[str, dict[str, str | None]], ...] = ()

        def handle_starttag(self, tag, attrs):
            self.found = (*self.found, (tag, dict(attrs)))

    tags = Tags()
    html = page(topics=[topic_fact()], containment=[containment_fact(5.0)])
    tags.feed(html)
    assert not [tag for tag, attrs in tags.found if tag in ("link", "img", "iframe") or "src" in attrs]
    assert not re.search(r"url\((?!#)", html)


def test_browser_runs_the_page_s_own_script_and_no_other():
    html = page(limiters=[limiter_fact(name=HOSTILE)])
    (script,) = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">' in html


def test_the_page_says_what_it_leaves_out():
    assert "in report.json" not in page(topics=[topic_fact()])
    assert "1 more is in report.json" in page(topics=[topic_fact(topic=f"t{number}") for number in range(101)])
    assert "7 of usage" in page(left_out={"usage": 7})
    assert "7 left out" in page(charts_left_out=7, rates=[rate_fact()])


def test_a_limit_without_waits_says_so():
    assert "only observed" in page(limiters=[limiter_fact(mode="observe", was_limited=False)])
    assert "rejects" in page(limiters=[limiter_fact(mode="reject")])
    assert "only observed" not in page()


def test_a_limit_that_varies_with_the_publish_rate_says_so():
    text = "last value: varies with the publish rate"
    assert text in page(limiters=[limiter_fact(is_relative=True)])
    assert text not in page(limiters=[limiter_fact()])


def test_what_was_refused_is_pain():
    html = page(
        limiters=[limiter_fact(mode="reject", rejected_messages=4321, throttled_s=0.0)],
        refusals=[
            RefusalFacts(reason="blocked", rejected=7, connections=1, first=BEGIN, last=END, example="by <b>order</b>")
        ],
    )
    assert "4\u202f321" in html
    assert "no stream waited: the limit refused the surplus" in html
    assert "blocked: 7 requests on 1 connection" in html
    assert "by &lt;b&gt;order" in html
    assert "Messages refused" not in page()


def test_a_run_of_which_lines_are_lost_says_so():
    assert "lines lost, or perhaps lost" in page(runs=[run_fact(is_lossy=True)])
    assert "lines lost, or perhaps lost" not in page()


def test_a_run_that_is_cut_off_says_so():
    html = page(runs=[run_fact(is_cut_off=True, ended=False), run_fact(boot_id="b2")])
    assert "cut off: no end written" in html
    assert "under 100 %" in html
    assert "cut off" not in page(runs=[run_fact(ended=False)])


def test_beside_a_promise_that_was_kept_stands_what_would_not_be_seen():
    text = "a shortfall of up to 1.1 % in ten seconds would not show"
    assert text in page(entitlement=[entitlement_fact(-0.1)])
    assert "would not show" not in page(entitlement=[entitlement_fact(0.5)])
    assert "would not show" not in page()


@pytest.mark.parametrize(
    ("lasts", "words"),
    [
        (timedelta(seconds=9), "2026-11-21 11:29:00 to 11:29:09 UTC"),
        (timedelta(days=1), "2026-11-21 11:29:00 to 2026-11-22 11:29:00 UTC"),
        (timedelta(milliseconds=370), "2026-11-21 11:29:00.000 to 11:29:00.370 UTC"),
        (timedelta(microseconds=7), "2026-11-21 11:29:00.000000 to 11:29:00.000007 UTC"),
        (timedelta(seconds=-9), "2026-11-21 11:29:00 to 11:28:51 UTC, the clock was put back in between"),
    ],
)
def test_a_window_shows_the_digits_that_tell_its_ends_apart(lasts, words):
    assert between((BEGIN, BEGIN + lasts)) == words


def test_only_what_was_broken_has_a_worst_window():
    kept = page(entitlement=[entitlement_fact(-0.5)], containment=[containment_fact(-5.0)])
    assert "closest window: 900 messages" in kept
    assert "worst window" not in kept
    broken_one = page(entitlement=[entitlement_fact(0.5)])
    assert "worst window: 900 messages" in broken_one


def test_a_run_that_is_not_covered_is_told_as_its_own_and_not_as_everybodys():
    runs = [run_fact(boot_id=f"b{number}") for number in range(34)]
    html = page(runs=[*runs, run_fact(proxy_id="mute", coverage=0.0), run_fact(boot_id="b")])
    assert '<p class="big">35 of 36</p>' in html
    assert "the least (mute, b) for 0.00 % of its time" in html
    assert '<p class="big">50.00 %</p><p>of the time covered' in page(runs=[run_fact(coverage=0.5)])
    assert '<p class="big">100 %</p><p>of the time covered' in page(runs=[*runs, run_fact()])


def test_one_message_too_many_is_one_message():
    assert "1 message too many" in page(containment=[containment_fact(1.0)])
    assert "2 messages too many" in page(containment=[containment_fact(2.0)])


def test_a_name_goes_on_in_the_next_line_behind_a_slash_and_is_still_no_markup():
    assert breakable("persistent://a/b/<c>") == "persistent://<wbr>a/<wbr>b/<wbr>&lt;c&gt;"
    assert breakable("") == ""


def test_what_is_shaded_is_the_worst_window_of_each_broken_promise():
    kept, over, both = (make_report(facts(**more)).limiters for more in MADE)
    key = (over[0].proxy_id, over[0].direction, over[0].level, over[0].name)
    assert broken(kept) == {}
    assert [len(windows) for windows in (broken(over)[key], broken(both)[key])] == [1, 2]


@pytest.mark.parametrize("deficit_s", [-0.5, 0.5])
def test_the_worst_window_of_an_entitlement_shows_its_numbers_kept_or_not(deficit_s):
    assert "900 messages passed of 1\u202f000 messages owed" in page(entitlement=[entitlement_fact(deficit_s)])
    both = page(entitlement=[entitlement_fact(deficit_s, owed_bytes=200_000.0)])
    assert "900 messages and 90 kB passed of 1\u202f000 messages or 200 kB owed" in both


def test_evidence_has_one_place_and_all_of_it_folds():
    html = page(containment=[containment_fact(5.0)], topics=[topic_fact()])
    assert html.count("a.jsonl, lines 4 to 31") == 1
    first_fold = html.index("<details")
    assert html.index('<header class="violated">') < html.index("What went wrong") < first_fold
    assert html.index("a.jsonl, lines 4 to 31") > first_fold
    assert "<details open" not in html


def test_headline_has_no_line_numbers_and_no_balances():
    doubt = doubt_fact(said="its bucket should hold -49.73")
    report = make_report(facts(doubts=[doubt]))
    text = f"{report.headline} {report.sentence} {report.tenants[0].sentence}"
    assert "contradict each other" in text
    assert "-49.73" not in text
    assert "a.jsonl" not in text
    assert "its bucket should hold -49.73" in render(report)
