from datetime import timedelta

from compliance.judging.quality import marked
from tests.compliance.judging.facts_made import END, run_fact

LATER = END + timedelta(seconds=10)


def test_a_run_without_an_end_before_a_later_run_is_cut_off():
    runs = [run_fact(ended=False), run_fact(boot_id="b2", last=LATER, ended=False), run_fact(proxy_id="q", ended=False)]
    assert [run.is_cut_off for run in marked(runs, LATER)] == [True, False, False]


def test_a_run_that_ended_in_order_is_not_cut_off():
    assert marked([run_fact(), run_fact(boot_id="b2", last=LATER)], LATER) == [
        run_fact(),
        run_fact(boot_id="b2", last=LATER),
    ]
