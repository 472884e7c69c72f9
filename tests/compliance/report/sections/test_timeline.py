from datetime import timedelta

from compliance.figures.facts import ChangeFacts, LossFacts
from compliance.judging.facts import GapFacts
from compliance.report.sections.timeline import timeline
from tests.compliance.judging.facts_made import END, FIRST_LINE, run_fact
from tests.compliance.planted import BEGIN

LATER = END + timedelta(minutes=5)


def kinds(changes=(), runs=(), losses=(), gaps=()):
    return [(event.kind, event.at) for event in timeline(list(changes), list(runs), list(losses), list(gaps), LATER)]


def test_a_second_run_of_a_proxy_is_a_restart_and_of_another_a_start():
    runs = [
        run_fact(),
        run_fact(boot_id="b2", first=LATER, last=LATER),
        run_fact(proxy_id="q", first=LATER, last=LATER),
    ]
    assert kinds(runs=runs) == [
        ("start", BEGIN),
        ("end", END),
        *[("end", LATER)] * 2,
        ("restart", LATER),
        ("start", LATER),
    ]


def test_a_run_that_stops_without_an_end_falls_silent_unless_it_is_the_last_thing_known():
    killed = run_fact(ended=False)
    assert kinds(runs=[killed]) == [("start", BEGIN)]
    assert ("silence", END) in kinds(runs=[killed, run_fact(boot_id="b2", first=LATER, last=LATER)])


def test_changes_losses_and_gaps_stand_in_the_order_of_time():
    change = ChangeFacts(
        at=LATER, kind="set", proxy_id="p", what="publish of topic", name="t", before="1", after="2", who="ann"
    )
    loss = LossFacts(
        proxy_id="p", of_boot="b", cause="disk", detail="full", lost_lines=None, lost_from=BEGIN, lost_until=END
    )
    gap = GapFacts(proxy_id="p", boot_id="b", after_seq=3, missing=2, until=END, behind=FIRST_LINE)
    events = timeline([change], [], [loss], [gap], LATER)
    assert [event.text for event in events] == [
        "the proxy says that an unknown number of lines of run b are lost (disk: full) until 11:29:10",
        "2 lines of run b are missing after number 3",
        "publish of topic t: 2 (before: 1), by ann",
    ]
