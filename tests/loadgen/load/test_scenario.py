"""What a scenario may say, and the pace that it asks for."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.scenario import Bursty, Greedy, ScenarioError, Steady, load_scenario, wanted_by

GOOD = """
tenants:
  bank:
    topics:
      payments/orders: {producers: 2, pattern: {kind: greedy, rate: 100}, connection: gateway}
limits:
  - {name: orders, topics: ["persistent://bank/payments/orders"], messages: 300}
  - {name: few, topics: ["persistent://bank/payments/orders"], messages: 2}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "load.yaml"


def reasons(file: Path, text: str) -> list[str]:
    file.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file)
    return caught.value.lines


def test_a_good_file_gives_full_topic_names_and_defaults(file: Path) -> None:
    file.write_text(GOOD)
    scenario = load_scenario(file)
    ((name, load),) = scenario.topics()
    assert name == "persistent://bank/payments/orders"
    assert (load.pattern, load.producers, load.connection) == (Greedy(kind="greedy", rate=100), 2, "gateway")
    assert (load.pending, load.message_bytes) == (1000, 256)


def test_a_burst_is_a_tenth_of_a_second_but_at_least_one_message(file: Path) -> None:
    file.write_text(GOOD)
    assert [limit.burst_messages for limit in load_scenario(file).limits] == [30, 1]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("producers: 2", "producers: 0", "producers: '0': it must be greater than or equal to 1"),
        ("rate: 100", "rate: fast", "payments/orders.pattern.rate: 'fast': a number belongs here"),
        ("greedy", "eager", "pattern: write kind: steady, greedy or bursty"),
        ("kind: greedy, ", "", "pattern: write kind: steady, greedy or bursty"),
        ("producers", "prodcuers", "prodcuers: '2': this key is not known here: remove it, or correct its spelling"),
        (", messages: 300", "", "limits.0.messages: this key must be given here"),
        ("{producers", "[producers", "no valid YAML"),
        ("bank:\n    topics:", "bank:\n    topic:", "tenants.bank.topics: this key must be given here"),
        ("{kind: greedy, rate: 100}", "[1]", "pattern: a list: a section of keys belongs here"),
        ("{kind: greedy, rate: 100}", "fast", "pattern: 'fast': a section of keys belongs here"),
        ("producers: 2", "producers: 1.5", "producers: '1.5': an integer belongs here"),
        ("name: few", "name: ''", "limits.1.name: '': it must not be empty"),
        (
            'topics: ["persistent://bank/payments/orders"], messages: 2}',
            "topics: [], messages: 2}",
            "at least one entry",
        ),
        ("payments/orders:", "orders:", "is not a topic name"),
        ('payments/orders"], messages: 2', 'payments/other"], messages: 2', "limit 'few' names"),
    ],
)
def test_each_error_names_file_key_value_and_remedy(file: Path, old: str, new: str, line: str) -> None:
    errors = reasons(file, GOOD.replace(old, new, 1))
    assert all(reason.startswith(f"{file}: ") for reason in errors)
    assert any(line in reason for reason in errors)
    for reason in errors:
        assert not any(word in reason for word in ("Input", "dictionary", "valid number", "…"))


def test_all_errors_are_told_at_once(file: Path) -> None:
    assert len(reasons(file, GOOD.replace("producers: 2", "producers: 0").replace("messages: 300", "messages: 0"))) == 2


def test_scenario_is_read_only_from_a_regular_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(ScenarioError, match="is not a file"):
            load_scenario(path)


def test_a_missing_file_is_named(file: Path) -> None:
    with pytest.raises(ScenarioError, match=r"load\.yaml: No such file or directory: give the scenario's file"):
        load_scenario(file)


@pytest.mark.parametrize("text", ["tenants: [", "\t- x", "a: b: c"])
def test_no_yaml_is_one_line(file: Path, text: str) -> None:
    (reason,) = reasons(file, text)
    assert "no valid YAML" in reason
    assert "\n" not in reason


@pytest.mark.parametrize("text", ["", "[]", "7"])
def test_yaml_that_is_no_scenario_is_one_line(file: Path, text: str) -> None:
    (reason,) = reasons(file, text)
    assert reason.startswith(f"{file}: (whole file): ")
    assert reason.endswith(("a section of keys belongs here", "nothing is written here, where a value belongs"))


BURSTY = Bursty(kind="bursty", rate=2000, burst=1, pause=3)
RATES = st.floats(0.01, 20_000)
PATTERNS = st.one_of(
    st.builds(Steady, kind=st.just("steady"), rate=RATES),
    st.builds(Greedy, kind=st.just("greedy"), rate=RATES),
    st.builds(Bursty, kind=st.just("bursty"), rate=RATES, burst=st.floats(0.01, 100), pause=st.floats(0.01, 100)),
)
ELAPSED = st.floats(0, 3600)


def test_a_steady_pace_is_rate_times_time() -> None:
    assert wanted_by(Steady(kind="steady", rate=200), 2.5) == 500


def test_a_burst_offers_its_rate_and_a_pause_nothing() -> None:
    assert [wanted_by(BURSTY, at) for at in (0, 0.5, 1, 2, 3.999, 4, 4.5, 5, 8)] == [
        *(0, 1000, 2000, 2000, 2000, 2000, 3000, 4000, 4000)
    ]


@given(pattern=PATTERNS, earlier=ELAPSED, later=ELAPSED)
def test_no_pattern_takes_anything_back(pattern: Steady | Greedy | Bursty, earlier: float, later: float) -> None:
    earlier, later = sorted((earlier, later))
    assert wanted_by(pattern, earlier) <= wanted_by(pattern, later)


@given(pattern=PATTERNS, elapsed=ELAPSED)
def test_no_pattern_is_faster_than_its_rate(pattern: Steady | Greedy | Bursty, elapsed: float) -> None:
    assert 0 <= wanted_by(pattern, elapsed) <= pattern.rate * elapsed + 1
