import csv
import io
from unicodedata import category

import msgspec
import pytest
from pyarrow import BufferReader
from pyarrow.parquet import read_table

from compliance.judging.verdict import judge_limiters
from compliance.report.page import TenantReport, render, tenant_exports, tenant_pages
from compliance.report.report import make_report
from compliance.report.subjects import MOST_PAGES, page_of, pictures
from tests.compliance.judging.facts_made import containment_fact, facts, limiter_fact, topic_fact
from tests.compliance.planted import BEGIN, TOPIC
from tests.compliance.report.test_page import HOSTILE, rate_fact
from tests.compliance.report.test_subjects import HOUR


def report_on(**more):
    return make_report(facts(**more))


def test_the_page_begins_with_one_sentence_and_one_picture():
    rates = [rate_fact(name=TOPIC, step=second, limit_messages=100.0) for second in range(10)]
    (page,) = tenant_pages(report_on(tenant_rates=rates)).values()
    sentence, picture, table = (
        page.index(mark) for mark in ("Nothing passed beyond the limit of acme;", "<svg", "<table")
    )
    assert sentence < picture < table
    assert page.count("<svg") == 1
    assert 'class="compliant"' in page


def test_a_page_names_no_other_tenant():
    rows = [limiter_fact(), limiter_fact(tenant="zeta", name="persistent://zeta/a/b")]
    topics = [topic_fact(), topic_fact(tenant="zeta", topic="persistent://zeta/a/b")]
    more = {"containment": [containment_fact(5.0, name="persistent://zeta/a/b")], "topics": topics}
    report = report_on(limiters=rows, **more, tenant_rates=[rate_fact(name=TOPIC)])
    pages = tenant_pages(report)
    assert list(pages) == ["tenants/zeta.html", "tenants/acme.html"]
    assert "zeta" not in pages["tenants/acme.html"]
    assert "acme" not in pages["tenants/zeta.html"]
    assert [(tenant.verdict, bool(tenant.rates)) for tenant in report.tenants] == [
        ("violated", False),
        ("compliant", True),
    ]


def test_the_picture_is_of_the_gravest_limit_close_up_where_it_was_broken():
    rows = [limiter_fact(name="a", last=BEGIN + HOUR), limiter_fact(name="b", last=BEGIN + HOUR)]
    limiters = judge_limiters(facts(limiters=rows, containment=[containment_fact(5.0, name="b")]))
    shown = pictures(limiters, [])["acme"]
    assert (shown.name, shown.step_s) == ("b", 1)
    kept = pictures(judge_limiters(facts(limiters=rows)), [])["acme"]
    assert (kept.first, kept.last) == (BEGIN, BEGIN + HOUR)


def test_a_tenant_without_a_limit_has_its_busiest_topic():
    topics = [topic_fact(topic="quiet"), topic_fact(topic="busy", passed_messages=9)]
    shown = pictures(judge_limiters(facts(limiters=[limiter_fact(was_limited=False)])), topics)["acme"]
    assert (shown.proxy_id, shown.name) == ("", "busy")


def test_the_gravest_tenants_have_a_page_and_the_rest_is_counted():
    rows = [limiter_fact(tenant=f"t{number:03}", name=f"n{number:03}") for number in range(MOST_PAGES + 3)]
    report = report_on(limiters=[*rows, limiter_fact(level="role", name="app", tenant="", namespace="")])
    assert (len(report.tenants), report.tenants_left_out) == (MOST_PAGES, 3)
    assert "3 have none" in render(report)


def test_hostile_name_is_text_on_its_page_and_a_single_file():
    report = report_on(limiters=[limiter_fact(tenant=HOSTILE, name=HOSTILE)], tenant_rates=[rate_fact(name=HOSTILE)])
    ((name, page),) = tenant_pages(report).items()
    assert page.count("<script") == 1
    assert name.count("/") == 1
    assert f'href="{name.replace("%", "%25")}"' in render(report)


def test_characters_that_turn_or_hide_text_are_escaped_in_pages():
    odd = "a\0b\u202ec\u200bd\u2067\x1b[0m\u2028e\u00e4\u65e5"
    report = report_on(limiters=[limiter_fact(tenant=odd, name=odd)], tenant_rates=[rate_fact(name=odd)])
    ((_, page),) = tenant_pages(report).items()
    seen = "a\\u0000b\\u202ec\\u200bd\\u2067\\u001b[0m\\u2028e\u00e4\u65e5"
    for text in (page, render(report)):
        assert seen in text
        assert not {"Cf", "Zl"} & set(map(category, text))


@pytest.mark.parametrize("tenant", ["../../etc", "..", "a" * 5000, "\u00e4" * 300, "a/b", "C:\\x", "\0"])
def test_a_file_of_any_tenant_lies_in_the_folder_and_is_its_own(tmp_path, tenant):
    path = tmp_path / page_of(tenant)
    path.parent.mkdir()
    path.touch()
    assert path.resolve().parent == (tmp_path / "tenants").resolve()
    assert page_of(tenant) != page_of(tenant + "b")


def test_page_of_a_tenant_is_there_as_json_csv_and_parquet():
    topics = [topic_fact(passed_messages=7), topic_fact(tenant="zeta", topic="persistent://zeta/a/b")]
    files = tenant_exports(report_on(limiters=[limiter_fact(), limiter_fact(tenant="zeta", name="z")], topics=topics))
    assert sorted(files) == [
        f"tenants/{tenant}.{kind}" for tenant in ("acme", "zeta") for kind in ("csv", "json", "parquet")
    ]
    assert not any(b"zeta" in content for name, content in files.items() if "acme" in name)
    own = msgspec.json.decode(files["tenants/acme.json"], type=TenantReport)
    assert (own.tenant, own.verdict, [topic.passed_messages for topic in own.topics]) == ("acme", "compliant", [7])
    (row,) = csv.DictReader(io.StringIO(files["tenants/acme.csv"].decode()))
    (kept,) = read_table(BufferReader(files["tenants/acme.parquet"])).to_pylist()
    assert (row["topic"], row["passed_messages"]) == (kept["topic"], str(kept["passed_messages"])) == (TOPIC, "7")


def test_tenant_without_a_topic_has_columns_and_no_rows():
    files = tenant_exports(report_on())
    assert read_table(BufferReader(files["tenants/acme.parquet"])).num_rows == 0
    assert files["tenants/acme.csv"].decode().startswith("tenant,namespace,topic,")
