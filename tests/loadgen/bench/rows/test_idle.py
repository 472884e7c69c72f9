import pytest

from loadgen.bench.rows import idle


def test_a_crowd_that_does_nothing_is_looked_at(stage, name, monkeypatch):
    monkeypatch.setattr(idle, "_SETTLE_S", 0.0)
    row = idle.row(20, 3, 0.0)
    found = row.measure(stage, name)
    assert found["wake_ups"] >= 0
    assert {figure.key for figure in row.figures} == set(found)


@pytest.mark.parametrize(("most", "possible"), [(100_000, 10_000), (20_000, 9_500), (2024, 512)])
def test_there_are_as_many_connections_as_descriptors_allow(most, possible):
    assert idle.connections_possible(10_000, most) == possible


def test_each_limit_is_a_topics():
    assert list(idle.many_limits(2)["topics"]) == [f"persistent://public/default/limited-{number}" for number in (0, 1)]


def test_all_descriptors_that_may_be_had_are():
    assert idle.descriptors() == idle.descriptors() > 0
