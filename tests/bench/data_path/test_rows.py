"""Each row is measured once, short: what it gives is what its figures ask for, and counts everything."""

from dataclasses import replace

import pytest

from bench.data_path import wire
from bench.data_path.command import SHORT as SHORT_FORM
from bench.data_path.command import rows, tls_rows
from bench.data_path.native import Live
from bench.data_path.proxies import BARE, EVERYBODY, PLANS, SLUICE
from bench.data_path.pulsar_perf import Traffic
from bench.data_path.rows import bucket, connections, many_streams, sizing, throughput, tls
from bench.data_path.rows.many_streams import Held, Load
from bench.data_path.stage import TlsLines
from bench.harness import BenchError
from loadgen.real.jars import ProcessFailed
from protocol.frames import FrameCutter


@pytest.fixture(scope="module")
def tls_lines(stage, tmp_path_factory):
    with TlsLines(tmp_path_factory.mktemp("tls"), stage.sink) as lines:
        yield lines


BOTH = [BARE, SLUICE]
SHORT = [
    (throughput.send_row(1000, 1), BOTH),
    (throughput.send_row(1000, 3), BOTH),
    (throughput.deliver_row(1000), BOTH),
    (throughput.paced_row(2, 4000, receipts=True), BOTH),
    (throughput.paced_row(2, 4000, receipts=False), BOTH),
    (throughput.latency_row(1000), BOTH),
    (throughput.closing_row(3), BOTH),
    (throughput.interpreted_row(), [SLUICE]),
    (connections.opening_row(20), BOTH),
    (connections.idle_row(20, 3, 0.0), [SLUICE]),
]


@pytest.mark.parametrize(
    ("row", "name"), [pytest.param(row, name, id=f"{row.name}, {name}") for row, names in SHORT for name in names]
)
def test_every_frame_counts_and_every_figure_is_given(stage, row, name, monkeypatch):
    """A frame that is lost or counted twice, or a figure without a value, would be seen here."""
    monkeypatch.setattr(connections, "SETTLE_S", 0.0)
    sample = row.measure(stage, name)
    assert {figure.key for figure in row.figures} <= set(sample)
    assert sample.get("lost", 0) == sample.get("share", 0) == sample.get("cut", 0) == 0
    assert all(sample[key] > 0 for key in ("rate", "p99") if key in sample)


ONE_LEG = ("-client", "-broker")
"""Ends of the names of rows that are measured as the one with both legs is."""


@pytest.mark.parametrize(
    "row",
    [row for row in tls.rows(10) if row.rounds is None and not row.name.endswith(ONE_LEG)],
    ids=lambda row: row.name,
)
def test_every_frame_counts_through_legs_with_tls(stage, tls_lines, row):
    sample = row.measure(replace(stage, tls=tls_lines), SLUICE)
    assert {figure.key for figure in row.figures} <= set(sample)
    assert sample.get("lost", 0) == 0
    assert all(sample[key] > 0 for key in ("rate", "p99", "per_cpu") if key in sample)


@pytest.mark.parametrize("row", [row for row in sizing.rows() if "-1024-" in row.name], ids=lambda row: row.name)
def test_each_figure_of_the_page_on_sizing_is_given(stage, tls_lines, row):
    sample = row.measure(replace(stage, tls=tls_lines), SLUICE)
    assert sample[row.figures[0].key] > 0


@pytest.mark.parametrize(("part", "more"), [(0.5, 0.1), (0.99, 5.1)])
def test_what_a_proxy_adds_is_not_what_the_machine_did_meanwhile(part, more):
    """Of 8 parts of 200 one with, one without the proxy are spoilt; one in 50 answers takes it 5 s longer."""
    direct = [1.0 + number % 10 for number in range(1600)]
    took = [each + 0.1 + 5 * (number % 50 == 49) for number, each in enumerate(direct)]
    direct[200:400] = [each + 30 for each in direct[200:400]]
    took[800:1000] = [each + 70 for each in took[800:1000]]
    assert tls.added(direct, took, part) == pytest.approx(more)


@pytest.mark.parametrize(("most", "possible"), [(100_000, 10_000), (20_000, 9_500), (2024, 512)])
def test_there_are_as_many_connections_as_descriptors_allow(most, possible):
    assert connections.connections_possible(10_000, most) == possible


def test_a_crowd_larger_than_what_comes_at_once_is_greeted(stage, name):
    with connections.crowd(stage, stage.peers[name].port, 20, 8) as opened:
        assert opened.seconds > 0


class NobodyGreeted:
    def connect_many(self, _port, count, _hello):
        return [-1] * count, 0, 1.0

    def welcome_many(self, _listener, count, _answer):
        return [-1] * count

    def reset_all(self, sockets):
        self.reset = sockets


def test_whoever_is_not_greeted_is_missed(stage):
    native = NobodyGreeted()
    with (
        pytest.raises(BenchError, match="0 of 3 connections were greeted"),
        connections.crowd(replace(stage, native=native), stage.sink.port, 3, 3),
    ):
        pass
    assert native.reset == [-1] * 6


def held(unit, rate, size, *, connections=1, streams=1, window_s=1.0):
    return Held(unit=unit, rate=rate, size=size, connections=connections, streams=streams, window_s=window_s)


@pytest.mark.parametrize("load", [held("messages", 50_000, 1000, connections=2, streams=3, window_s=0.5)])
def test_streams_are_held_and_what_they_cost_is_measured(stage, monkeypatch, load):
    monkeypatch.setattr(many_streams, "_BURST_OVER_S", 0.05)
    monkeypatch.setattr(many_streams, "_LOGGED_S", 0.05)
    row = many_streams.held_row(load)
    sample = row.measure(stage, SLUICE)
    assert set(sample) == {figure.key for figure in row.figures}
    assert sample["held"] > 0


def test_a_rate_counts_the_window_alone(monkeypatch):
    """300 frames come within a window of two seconds, 7 came before it."""
    live, now = Live(1), 10.0
    live.counts[0] = 7

    def passes(seconds):
        nonlocal now
        now += seconds
        live.counts[0] += 300

    monkeypatch.setattr("time.sleep", passes)
    monkeypatch.setattr("time.monotonic", lambda: now)
    load = held("bytes", 1000, 100, window_s=2.0)
    assert load.passing(live) == 150 * load.cost


def test_each_stream_of_a_connection_has_its_turn():
    load = held("messages", 1, 100, streams=3)
    first, second, third, *rest = list(FrameCutter(1 << 20).feed(wire.many(load.entries)))
    assert [first, second, third] == [wire.send_frame(100, number).frame for number in (1, 2, 3)]
    assert rest[:3] == [first, second, third]
    assert {len(frame) for frame in rest} == {len(first)}


def test_an_entry_costs_a_message_or_what_is_behind_its_command():
    assert held("messages", 1, 1000).cost == 1
    command = int.from_bytes(wire.send_frame(1000).frame[4:8], "big")
    assert held("bytes", 1, 1000).cost == 1000 - 8 - command


LOAD = Load(connections=2, streams=3, size=1000, window_s=0.5)


@pytest.mark.slow
def test_the_log_is_measured_beside_sluice_without_it(stage, monkeypatch):
    for name, value in (("_ALL_LOGGED_S", 0.05), ("_TIMES_A_SECOND", 100)):
        monkeypatch.setattr(many_streams, name, value)
    row = many_streams.log_row(LOAD)
    sample = row.measure(stage, SLUICE)
    assert set(sample) == {figure.key for figure in row.figures}
    assert min(sample[key] for key in ("idle", "cpu", "without", "rate", "free")) > 0


def test_each_stream_of_a_connection_is_active():
    assert list(FrameCutter(1 << 20).feed(LOAD.entries)) == [
        wire.send_frame(1000, number).frame for number in (1, 2, 3)
    ]


@pytest.mark.slow
def test_the_bucket_is_timed_from_both_sides_by_the_cpus_time(stage, monkeypatch):
    """In a process whose CPU time is one second each time, whatever the wall says."""
    one_second = "import time; time.process_time = iter((0, 1)).__next__\n"
    for script in ("_FROM_PYTHON", "_INSIDE"):
        monkeypatch.setattr(bucket, script, one_second + getattr(bucket, script).replace("000000", "000"))
    monkeypatch.setattr(bucket, "METHODS", ("pay",))
    monkeypatch.setenv(
        "MYPYC_OPT_LEVEL", "0"
    )  # how fast it is, is no matter here; and half of the time was the C compiler's
    assert bucket.row().measure(stage, SLUICE) == {"pay_python": 2_000 / 1e6, "pay_inside": 20_000 / 1e6}
    assert {figure.key for figure in bucket.row().figures} == {"pay_python", "pay_inside"}


def test_a_script_that_fails_is_an_error(stage, monkeypatch):
    monkeypatch.setattr(bucket, "_FROM_PYTHON", "raise SystemExit('no bucket')")
    with pytest.raises(BenchError, match="no bucket"):
        bucket.row().measure(stage, "Sluice")


TRAFFIC = Traffic(rate=1000, size=100, is_batched=False, messages=500)


@pytest.fixture
def real(stage):
    return replace(stage, real=lambda plan: stage.peers[plan.name])


def test_what_passes_through_the_peer_is_measured(real, name, monkeypatch):
    calls = []

    def passes(*call):
        calls.append(call)
        return 900.0

    monkeypatch.setattr(throughput, "pass_through", passes)
    row = throughput.perf_row(TRAFFIC)
    samples = [row.measure(real, name) for _ in range(2)]
    assert set(samples[0]) == {figure.key for figure in row.figures}
    assert samples[0]["rate"] == 90
    url, topic, traffic, folder = calls[0]
    assert (url, traffic) == (f"pulsar://127.0.0.1:{real.peers[name].port}", TRAFFIC)
    assert topic != calls[1][1], "a topic of its own each time"
    assert folder.parent == real.folder


def test_what_fails_is_one_line(real, monkeypatch):
    def fails(*_):
        raise ProcessFailed("pulsar-perf produce ended with code 1", "a\nstack\ntrace")

    monkeypatch.setattr(throughput, "pass_through", fails)
    with pytest.raises(BenchError, match=r"\Apulsar-perf produce ended with code 1\Z"):
        throughput.perf_row(TRAFFIC).measure(real, BARE)


def test_without_a_real_broker_nothing_is_measured(stage):
    with pytest.raises(BenchError, match="--real"):
        throughput.perf_row(TRAFFIC).measure(stage, BARE)


def test_every_peer_of_a_row_has_a_plan_and_a_comparison():
    plans = {plan.name for plan in PLANS}
    assert {SLUICE, BARE} < set(EVERYBODY) <= plans
    assert {name for row in [*rows(), *tls_rows()] for name in row.peers} == plans
    for row in rows():
        beside = {goal.beside for figure in row.figures for goal in figure.goals if goal.beside}
        assert beside <= set(row.peers)
        assert row.subject == SLUICE


def test_the_short_form_has_a_guard_in_each_of_its_rows_wider_than_the_goal():
    named = {row.name: row for row in rows()}
    assert len(named) == len(rows())
    for name in SHORT_FORM:
        goals = [goal for figure in named[name].figures for goal in figure.goals if goal.guard is not None]
        assert goals
        assert all(goal.bound is None or goal.allows(goal.bound, goal.guard or 0.0) for goal in goals)
