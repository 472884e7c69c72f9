import csv
import io
import json

import pytest

from compliance.judging.facts import UsageFacts
from compliance.report.page import report_json, tables, usage_csv
from compliance.report.report import make_report
from tests.compliance.judging.facts_made import containment_fact, facts

HEADER = "day,tenant,namespace,topic,direction,offered_messages,offered_bytes,passed_messages,passed_bytes,bytes_basis"


def usage(**more):
    values = {"day": "2026-11-21", "tenant": "acme", "namespace": "orders", "topic": "persistent://acme/orders/new"}
    counts = {"offered_messages": 4, "offered_bytes": 3, "passed_messages": 2, "passed_bytes": 1}
    return UsageFacts(**(values | {"direction": "publish"} | counts | more))


def cells(row):
    return list(csv.reader(io.StringIO(usage_csv([row], "entries"))))[1]


def test_the_columns_are_those_agreed():
    assert usage_csv([usage()], "entries") == (
        f"{HEADER}\n2026-11-21,acme,orders,persistent://acme/orders/new,publish,4,3,2,1,entries\n"
    )


RUN = ('=HYPERLINK("http://x")', "+1+cmd|' /C calc'!A0", "@SUM(A1)", "-1+1", "=1-1", "=B2", "-acme", "=acme")
WIDE = ("\uff1d1", "\uff0b1", "\uff0d1", "\uff20A1")
BEHIND = tuple(f"{before}=1" for before in ("\t", "\r", "\n", " ", "\u00a0", "\u200b", "\ufeff", "\u3000", " \u200b"))


@pytest.mark.parametrize("name", [*RUN, *WIDE, *BEHIND, "'=1", "'"])
def test_a_name_that_a_spreadsheet_would_run_is_made_text_and_can_be_read_back(name):
    (cell,) = cells(usage(tenant=name))[1:2]
    assert cell == "'" + name
    assert cell.removeprefix("'") == name


@pytest.mark.parametrize("name", ["acme", "a=b", "a,b", 'a"b', "a\nb", "größe", "1", "_a", "a'b"])
def test_a_legal_name_stays_as_it_is(name):
    assert cells(usage(tenant=name))[1] == name


def test_the_json_holds_verdict_and_evidence():
    report = json.loads(report_json(make_report(facts(containment=[containment_fact(1.0)]))))
    assert report["overall"]["verdict"] == "violated"
    assert report["limiters"][0]["worst_containment"]["excess"] == 1.0
    assert report["overall"]["complete_up_to"] == "2026-11-21T11:29:10Z"


def test_the_tables_say_what_is_said_once_for_the_whole():
    made = make_report(facts(containment=[containment_fact(1.0)], left_out={"usage": 7}))
    (row,) = csv.DictReader(io.StringIO(tables(made)["overall.csv"]))
    assert (row["verdict"], row["headline"], row["coverage"]) == ("violated", "1 limit exceeded", "1.0")
    assert (row["missing"], row["objective"], row["bytes_basis"]) == ("0", "0.999", made.bytes_basis)
    assert tables(made)["left-out.csv"] == "table,rows\nusage,7\n"


def test_a_row_of_a_verdict_names_the_lines_behind_it():
    made = make_report(facts(containment=[containment_fact(1.0)]))
    row = next(csv.DictReader(io.StringIO(tables(made)["verdicts.csv"])))
    first, last = (row[f"worst_window_{which}_line_line"] for which in ("first", "last"))
    assert (row["worst_window_first_line_file"], first, last) == ("a.jsonl", "4", "31")
