"""Looks at a proxy again and again."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from protocol.exit_codes import ExitCode
from proxy.cli import top_view
from proxy.cli.admin_link import AdminLink
from proxy.cli.options import AdminLinkError, AdminOptions
from proxy.cli.top_view import Poll, TopRequest, run
from tests.proxy.console_states import poll, state

REQUEST = TopRequest([AdminLink(AdminOptions())], 2.0, once=True, sort="held", rows=20)
Answers = Callable[[list[Poll | Exception]], list[float]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Sets what the proxy will answer; when there is nothing more, somebody presses Ctrl-C. Gives the pauses made."""

    def set_up(coming: list[Poll | Exception]) -> list[float]:
        left: Iterator[Poll | Exception] = iter(coming)

        def fetch(_link: AdminLink, _wanted: object) -> Poll:
            answer = next(left, KeyboardInterrupt())
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(top_view, "fetch", fetch)
        return []

    return set_up


def watched(request: TopRequest, pauses: list[float], *, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, height=30, color_system=None)
    run(request, console, pauses.append)
    return out.getvalue()


def counting(number: int) -> list[Poll | Exception]:
    return [poll(1000.0 * n, state(passed_messages=100 * n)) for n in range(number)]


def test_once_is_two_looks_an_interval_apart_and_one_table(answers: Answers) -> None:
    pauses = answers(counting(5))
    text = watched(REQUEST, pauses, terminal=False)
    assert pauses == [2.0]
    assert text.count("topic ") == 1
    assert "passed 100/s" in text


def test_into_a_pipe_goes_one_plain_table_after_the_other(answers: Answers) -> None:
    pauses = answers(counting(4))
    text = watched(replace(REQUEST, once=False), pauses, terminal=False)
    assert text.count("topic ") == 3
    assert "\x1b" not in text
    assert len(pauses) == 4


def test_a_terminal_gets_a_live_table_until_ctrl_c(answers: Answers) -> None:
    pauses = answers(counting(3))
    text = watched(replace(REQUEST, once=False), pauses, terminal=True)
    assert "\x1b[?1049h" in text, "a screen of its own"
    assert text.rstrip().endswith(("\x1b[?25h", "\x1b[?1049l")), "which is left again"
    assert "passed 100/s" in text


def test_a_live_table_waits_for_a_proxy_that_is_gone_and_shows_no_rate_over_the_gap(answers: Answers) -> None:
    gap = AdminLinkError("127.0.0.1:8080: no answer (refused)")
    pauses = answers([*counting(2), gap, gap, poll(90_000, state(passed_messages=900)), *counting(0)])
    text = watched(replace(REQUEST, once=False), pauses, terminal=True)
    assert "no answer (refused)" in text
    assert len(pauses) == 5, "it asks no more often than otherwise"
    assert "passed 0/s" in text.rpartition("no answer")[2]


@pytest.mark.parametrize("terminal", [True, False])
def test_without_a_first_answer_there_is_nothing_to_watch(answers: Answers, *, terminal: bool) -> None:
    pauses = answers([AdminLinkError("127.0.0.1:8080: no answer")])
    with pytest.raises(AdminLinkError):
        watched(replace(REQUEST, once=False), pauses, terminal=terminal)


def test_a_terminal_that_is_low_gets_fewer_rows(answers: Answers) -> None:
    many = [poll(1000.0 * n, *(state(stream_id=k, producer_name=f"p{k}.") for k in range(50))) for n in range(2)]
    pauses = answers([*many])
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=12, color_system=None)
    run(replace(REQUEST, once=False), console, pauses.append)
    last = out.getvalue().rpartition("topic ")[2]
    assert "p7." in last
    assert "p8." not in last


def test_one_of_several_that_is_silent_is_named(answers: Answers) -> None:
    several = replace(REQUEST, links=[AdminLink(AdminOptions(f"127.0.0.{n}:8080")) for n in (1, 2)])
    silent = AdminLinkError("127.0.0.2:8080: no answer")
    pauses = answers([counting(1)[0], silent, counting(2)[1], silent])
    out = io.StringIO()
    with pytest.raises(AdminLinkError, match=r"127\.0\.0\.2:8080: no answer") as failed:
        run(several, Console(file=out, width=120), pauses.append)
    assert failed.value.exit_code == ExitCode.FAILED, "a script notices"
    assert "127.0.0.2:8080: no answer" in out.getvalue()
    assert "passed 100/s" in out.getvalue(), "the others are shown all the same"


def test_one_that_answers_again_in_time_is_no_failure(answers: Answers) -> None:
    several = replace(REQUEST, links=[AdminLink(AdminOptions(f"127.0.0.{n}:8080")) for n in (1, 2)])
    pauses = answers([counting(1)[0], AdminLinkError("b: no answer"), *counting(2)])
    assert "no answer" not in watched(several, pauses, terminal=False)


def test_table_that_goes_on_does_not_end_as_one_is_silent(answers: Answers) -> None:
    several = replace(REQUEST, links=[AdminLink(AdminOptions(f"127.0.0.{n}:8080")) for n in (1, 2)], once=False)
    silent = AdminLinkError("127.0.0.2:8080: no answer")
    pauses = answers([counting(1)[0], silent, counting(2)[1], silent])
    assert "passed 100/s" in watched(several, pauses, terminal=False)


def test_json_is_a_line_for_each_look(answers: Answers) -> None:
    text = watched(replace(REQUEST, once=False, json=True), answers(counting(3)), terminal=True)
    rates = [json.loads(line)["streams"][0]["passed_per_s"] for line in text.splitlines()]
    assert rates == [100.0, 100.0]
