import re
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.limiter import Scope
from limiter.names import PatternValues, fits, form_of, is_pattern, overlap
from limiter.policies import Change, Policies, Value
from limiter.token_bucket import Limit, Rate
from protocol.topic_name import parse_topic

NAME_PART = st.text("ab", min_size=1, max_size=4)
PATTERN_PART = st.builds("{}*{}".format, st.text("ab", max_size=2), st.text("ab", max_size=2)) | NAME_PART
NAMES = st.builds("{}/{}".format, NAME_PART, NAME_PART)
PATTERNS = st.builds("{}/{}".format, PATTERN_PART, PATTERN_PART)


def matched(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), name) is not None


def specificity(pattern: str) -> list[tuple[bool, int, int]]:
    return [("*" not in part, len(part) * ("*" in part), part.find("*")) for part in pattern.split("/")]


@given(put=st.lists(PATTERNS, max_size=20), gone=st.lists(PATTERNS, max_size=5), name=NAMES)
def test_patterns_match_in_the_documented_order(put: list[str], gone: list[str], name: str) -> None:
    values: PatternValues[str] = PatternValues()
    for pattern in put:
        values.put(pattern, pattern)
    for pattern in gone:
        values.take_back(pattern)
    left = {pattern for pattern in put if pattern not in gone and matched(pattern, name)}
    expected = sorted(left, key=lambda pattern: (pattern == name, specificity(pattern)), reverse=True)
    for table in (values, values.copy()):
        assert list(table.matches(name)) == [(pattern, pattern) for pattern in expected]
    assert all(fits(pattern, name) == matched(pattern, name) for pattern in put)


@given(patterns=st.sets(PATTERNS, min_size=2, max_size=20), name=NAMES)
def test_no_two_patterns_of_one_name_are_equally_specific(patterns: set[str], name: str) -> None:
    both = [pattern for pattern in patterns if matched(pattern, name)]
    assert all(
        form_of(pattern) != form_of(other)
        for pattern, other in combinations(both, 2)
        if "*" in pattern and "*" in other
    )


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("shop/*", "Shop/a"),
        ("shop/*", "shop"),
        ("shop/*", "shop/a/b"),
        ("*/a", "shop/x/a"),
        ("ab*ba/x", "aba/x"),
        ("a.c/*", "abc/x"),
        ("free-*", "free"),
    ],
)
def test_pattern_does_not_match(pattern: str, name: str) -> None:
    values: PatternValues[int] = PatternValues()
    values.put(pattern, 1)
    assert not list(values.matches(name))


def test_each_is_a_name_and_no_pattern() -> None:
    values: PatternValues[int] = PatternValues()
    values.put("*", 1)
    assert not list(values.matches("acme"))
    assert list(values.matches("*")) == [("*", 1)]


def test_lookup_takes_a_step_per_form_and_not_per_pattern() -> None:
    values: PatternValues[int] = PatternValues()
    for number in range(10_000):
        values.put(f"tenant-{number:05}/*", number)
    looked_up: list[str] = []

    class Counting(dict[str, int]):
        def get(self, key: str, default: object = None) -> int | None:  # type: ignore[override]
            looked_up.append(key)
            return super().get(key)

    values.by_name = Counting(values.by_name)
    assert list(values.matches("tenant-00777/x")) == [("tenant-00777/*", 777)]
    assert len(looked_up) == 2, "the name itself, and the only form"


def in_force(policies: Policies, topic: str) -> dict[str, tuple[str, int, str]]:
    entries = policies.in_force("publish", parse_topic(topic))
    return {
        entry.scope.level: (entry.scope.name, entry.limit.messages.tokens if entry.limit.messages else 0, entry.source)
        for entry in entries
    }


def value(tokens: int, plan: str = "") -> Value:
    return Value(Limit(Rate(tokens, 10**9, tokens)), "file", plan)


def test_each_matching_name_has_a_limit_of_its_own() -> None:
    policies = Policies()
    policies.put("publish", Setting.TENANT, "free-*", value(5, "free"))
    policies.put("publish", Setting.TENANT, "*", value(9))
    policies.put("publish", Setting.TENANT, "free-b", value(7))
    policies.put("publish", Setting.NAMESPACE, "*/shop-*", value(3))
    assert in_force(policies, "free-a/x/t") == {"tenant": ("free-a", 5, "pattern total file plan free")}
    assert in_force(policies, "free-b/shop-1/t") == {
        "tenant": ("free-b", 7, "total file"),
        "namespace": ("free-b/shop-1", 3, "pattern total file"),
    }
    assert in_force(policies, "acme/shop-/t") == {
        "tenant": ("acme", 9, "each total file"),
        "namespace": ("acme/shop-", 3, "pattern total file"),
    }


def test_each_kind_of_limit_has_its_own_most_specific_pattern() -> None:
    policies = Policies()
    policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "acme/*", value(5))
    policies.put("publish", Setting.NAMESPACE, "acme/shop", value(7))
    assert in_force(policies, "acme/shop/t") == {
        "namespace": ("acme/shop", 7, "total file"),
        "topic": ("persistent://acme/shop/t", 5, "pattern namespace file"),
    }


def test_subscribe_rate_is_that_of_the_pattern() -> None:
    policies = Policies()
    policies.put("subscribe", Setting.TOPIC_OF_NAMESPACE, "acme/*", value(5, "gold"))
    rate = policies.subscribe_rate(parse_topic("acme/shop/t"))
    assert rate == (Rate(5, 10**9, 5), "pattern namespace file plan gold")
    assert policies.subscribe_rate(parse_topic("other/shop/t")) is None


def test_change_of_a_pattern_may_tune_only_limits_it_matches() -> None:
    change = Change("publish", Setting.NAMESPACE, "acme/*", only_tunes=True)
    assert change.may_tune(Scope("publish", "namespace", "acme/a", "acme", "a"))
    assert not change.may_tune(Scope("publish", "namespace", "other/a", "other", "a"))
    assert Setting.NAMESPACE.record.streams_of("acme/*") is None, "any stream may be concerned"


_SHORT = ["".join(letters) for length in range(1, 5) for letters in product("ab", repeat=length)]
_PATTERNS = [f"{before}*{after}" for before in ("", "a", "b", "ab") for after in ("", "a", "b", "ba")] + ["a", "ab"]


@pytest.mark.parametrize("first", _PATTERNS)
def test_patterns_overlap_where_a_name_matches_both(first: str) -> None:
    def matching(pattern: str) -> set[str]:
        return {name for name in _SHORT if pattern in {"*", name} or (is_pattern(pattern) and fits(pattern, name))}

    for other in _PATTERNS:
        assert overlap(first, other) == bool(matching(first) & matching(other)), other
        assert overlap(f"{first}/x", f"{other}/*") == overlap(first, other)
    assert not overlap(f"{first}/x", first)
