"""Totals by namespace: a bounded number of them."""

import pytest

from proxy.observe import totals
from proxy.observe.totals import OTHERS, NamespaceTotals


def test_each_namespace_and_direction_has_its_own() -> None:
    found = NamespaceTotals()
    found.of("t", "n", "publish").passed_messages += 3
    found.of("t", "n", "publish").passed_messages += 2
    found.of("t", "n", "dispatch").passed_messages += 1
    assert found.by_name["t", "n", "publish"].passed_messages == 5
    assert found.by_name["t", "n", "dispatch"].passed_messages == 1


def test_over_the_bound_new_ones_are_counted_together_and_known_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST_NAMESPACES", 1)
    found = NamespaceTotals()
    for name in ("a", "b", "c", "d", "a"):
        found.of("t", name, "publish").received_messages += 1
    assert found.by_name["t", "a", "publish"].received_messages == 2
    assert found.by_name[(*OTHERS, "publish")].received_messages == 2
    assert found.label("t", "z", "dispatch") == (*OTHERS, "dispatch")
    assert len(found.by_name) == 3
