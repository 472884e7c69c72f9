"""Totals by namespace: a bounded number of them."""

import pytest

from limiter.limiter import StreamName
from limiter.token_bucket import Direction
from proxy.observe import totals
from proxy.observe.totals import LONGEST_NAME, MOST_UNHEARD_OF, OTHERS, NamespaceTotals


def stream_name(namespace: str, direction: Direction = "publish") -> StreamName:
    return StreamName(direction, "t", namespace, f"persistent://t/{namespace}/x", 1)


def test_each_namespace_and_direction_has_its_own() -> None:
    namespaces = NamespaceTotals()
    namespaces.of(stream_name("n", "publish")).passed_messages += 3
    namespaces.of(stream_name("n", "publish")).passed_messages += 2
    namespaces.of(stream_name("n", "dispatch")).passed_messages += 1
    assert namespaces.by_name["t", "n", "publish"].passed_messages == 5
    assert namespaces.by_name["t", "n", "dispatch"].passed_messages == 1


def test_over_the_bound_new_ones_are_counted_together_and_known_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST_NAMESPACES", 1)
    namespaces = NamespaceTotals()
    for name in ("a", "b", "c", "d", "a"):
        namespaces.of(stream_name(name, "publish")).received_messages += 1
    assert namespaces.by_name["t", "a", "publish"].received_messages == 2
    assert namespaces.by_name[(*OTHERS, "publish")].received_messages == 2
    assert namespaces.label("t", "z", "dispatch") == (*OTHERS, "dispatch")
    assert len(namespaces.by_name) == 3


def test_namespaces_that_are_only_named_leave_room_for_those_of_which_messages_come() -> None:
    namespaces = NamespaceTotals()
    for number in range(3000):
        namespaces.of(stream_name(f"n{number}"), has_messages=False).permits_asked += 1
    assert len(namespaces.by_name) == 2 * MOST_UNHEARD_OF + 1
    assert namespaces.by_name[(*OTHERS, "publish")].permits_asked == 2000
    namespaces.of(stream_name("honest")).received_messages += 1
    assert namespaces.by_name["t", "honest", "publish"].received_messages == 1


def test_a_long_name_is_no_label() -> None:
    namespaces = NamespaceTotals()
    namespaces.of(stream_name("n" * (LONGEST_NAME + 1))).received_messages += 1
    assert list(namespaces.by_name) == [(*OTHERS, "publish")]
