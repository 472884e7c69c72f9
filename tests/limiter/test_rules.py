"""Limits as lines: the same in all processes, and those of others hold where nothing is written here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.rules import digest_of
from limiter.levels import SHAREABLE, Client, Setting
from limiter.policies import (
    FLEET_ORIGIN,
    MANY_CHANGES,
    MOST_NAME,
    MOST_NUMBER,
    Change,
    Policies,
    PutRules,
    RuleTally,
    SharedRules,
    Value,
    described,
    written,
)
from limiter.token_bucket import NOTHING_PUBLISHED, Limit, Rate, rate
from protocol.topic_name import parse_topic

TOPIC = parse_topic("persistent://acme/shop/orders")
ALL = frozenset(SHAREABLE)
ACME = "publish tenant acme\0messages=1000/1000000000/100"


def rules_of(*values: tuple[Setting, str, Limit], levels: frozenset[str] = ALL) -> tuple[Policies, SharedRules]:
    policies = Policies(tally=RuleTally(levels))
    rules = SharedRules(policies)
    for setting, name, limit in values:
        policies.put("publish", setting, name, Value(limit, "file"))
    return policies, rules


def in_force(policies: Policies) -> dict[str, tuple[Limit, str]]:
    client = Client(producer_name="p", role="r")
    return {entry.scope.level: (entry.limit, entry.source) for entry in policies.in_force("publish", TOPIC, client)}


RATES = st.builds(Rate, st.integers(1, 2**62), st.integers(1, 2**62), st.integers(1, 2**62))
LIMITS = st.builds(
    Limit,
    *[st.none() | RATES] * 4,
    mode=st.sampled_from(["enforce", "observe", "reject"]),
    published=st.sampled_from([None, NOTHING_PUBLISHED]),
).filter(bool)


@given(LIMITS)
def test_what_is_written_is_read_as_it_was(limit: Limit) -> None:
    policies, rules = rules_of()
    rules.adopt([f"publish tenant acme\0{written(limit)}"])
    expected = {} if limit.mode == "observe" else {"tenant": (limit, f"total {FLEET_ORIGIN}")}
    assert in_force(policies) == expected


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from([rate(1), rate(2)])), max_size=30))
def test_the_digest_is_that_of_what_is_written_however_it_came(puts: list[tuple[str, Rate | None]]) -> None:
    policies, rules = rules_of()
    for name, one in puts:
        policies.put("publish", Setting.TENANT, name, None if one is None else Value(Limit(one), "rest"))
        policies.attach({name: "gold"} if one else {}, {})
    last = {name: one for name, one in puts if one is not None and dict(puts)[name] is not None}
    now = {name: one for name, one in dict(puts).items() if one is not None}
    assert last.keys() == now.keys()
    afresh, other = rules_of(*[(Setting.TENANT, name, Limit(one)) for name, one in sorted(now.items())])
    afresh.attach(dict(policies.groups_of_tenants), {})
    assert (rules.digest, rules.total) == (other.digest, other.total)
    assert sorted(lines := rules.lines(0, 10**6)) == sorted(other.lines(0, 10**6))
    assert (rules.digest, rules.total) == (digest_of(lines), len(lines))  # a coordinator holds members to it
    assert len(rules.lines(0, 10**6)) == rules.total
    copied = policies.copy()
    assert copied.tally is not None
    copied.clear()
    assert (rules.digest, rules.total) == (other.digest, other.total)


def test_what_is_not_shared_or_limits_nothing_is_no_rule() -> None:
    _, rules = rules_of(
        (Setting.PROXY, "", Limit(rate(1))),
        (Setting.TENANT, "acme", Limit()),
        (Setting.ROLE, "r", Limit(rate(1))),
        (Setting.TENANT, "x" * (MOST_NAME + 1), Limit(rate(1))),
        levels=ALL - {"role"},
    )
    assert (rules.digest, rules.total, rules.lines(0, 1000)) == (0, 0, [])


def test_lines_come_in_pages_and_a_page_has_one_at_least() -> None:
    _, rules = rules_of(*[(Setting.TENANT, f"t{number}", Limit(rate(1))) for number in range(10)])
    whole = rules.lines(0, 10**6)
    size = len(whole[0].encode())
    paged: list[str] = []
    while len(paged) < 10:
        page = rules.lines(len(paged), 3 * size)
        assert 1 <= len(page) <= 3
        paged += page
    assert paged == whole
    assert rules.lines(4, 1) == whole[4:5]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (Limit(rate(5)), Limit(rate(5), rate(300))),
        (Limit(size=rate(7)), Limit(rate(100), rate(7))),
        (Limit(rate(5), rate(7)), Limit(rate(5), rate(7))),
        (Limit(rate(5), mode="observe"), Limit(rate(100), rate(300))),
        (Limit(size=rate(7), published=NOTHING_PUBLISHED), Limit(size=rate(7), published=NOTHING_PUBLISHED)),
    ],
    ids=["bytes are lacking", "messages are lacking", "nothing is", "it only observes", "it is relative"],
)
def test_others_hold_in_the_units_that_are_not_limited_here(own: Limit, expected: Limit) -> None:
    policies, rules = rules_of((Setting.TENANT, "acme", own))
    rules.adopt([f"publish tenant acme\0{written(Limit(rate(100), rate(300)))}"])
    ((limit, _),) = in_force(policies).values()
    assert limit == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (Limit(rate(500), rate(70)), (Limit(rate(100), rate(70)), "total fleet")),
        (Limit(rate(500), rate(700)), (Limit(rate(100), rate(300)), "total fleet")),
        (Limit(rate(100, burst=99)), (Limit(rate(100, burst=10), rate(300)), "total fleet")),
        (Limit(rate(50), rate(70)), (Limit(rate(50), rate(70)), "total file")),
        (Limit(rate(500), mode="reject"), (Limit(rate(100), rate(300), mode="reject"), "total fleet")),
    ],
    ids=["messages are lower", "both are", "the burst is", "nothing is", "the mode is its own"],
)
def test_of_two_values_for_the_same_the_lower_holds_unit_by_unit(own: Limit, expected: tuple[Limit, str]) -> None:
    policies, rules = rules_of((Setting.TENANT, "acme", own))
    other = f"publish tenant acme\0{written(Limit(rate(100, burst=10), rate(300)))}"
    rules.adopt([other])
    assert in_force(policies) == {"tenant": expected}
    rules.adopt([])
    assert in_force(policies) == {"tenant": (own, "total file")}


def test_of_several_values_for_one_target_the_lowest_holds() -> None:
    policies, rules = rules_of()
    rules.adopt(
        f"publish tenant acme\0{written(Limit(one, other))}"
        for one, other in ((rate(100), None), (rate(50), rate(9)), (rate(50, burst=1), rate(90)))
    )
    assert in_force(policies) == {"tenant": (Limit(rate(50, burst=1), rate(9)), "total fleet")}


def test_a_wider_value_of_this_process_goes_before_a_narrower_one_of_others() -> None:
    """Both have the topic's limit then, and where two are different the lowest holds for all."""
    policies, rules = rules_of((Setting.TOPIC_OF_NAMESPACE, "acme/shop", Limit(rate(100))))
    rules.adopt([f"publish topic {TOPIC.full}\0{written(Limit(rate(500)))}"])
    assert in_force(policies) == {"topic": (Limit(rate(100)), "namespace file")}


@pytest.mark.parametrize("has_limit", [True, False])
def test_an_attachment_of_others_holds_where_there_is_none_here(has_limit: bool) -> None:  # noqa: FBT001
    gold, group = Limit(rate(10)), "publish resource_group gold"
    policies, rules = rules_of(*([(Setting.RESOURCE_GROUP, "gold", gold)] if has_limit else []))
    rules.adopt(["attached namespace acme/shop\0gold", f"{group}\0{written(gold)}"])
    assert {level: limit for level, (limit, _) in in_force(policies).items()} == {"resource_group": gold}
    policies.attach({"acme": "silver"}, {})
    assert in_force(policies) == {}


def test_what_cannot_be_read_or_is_not_shared_here_holds_not() -> None:
    policies, rules = rules_of(levels=ALL - {"role"})
    rules.adopt(
        [
            "publish tenant acme",
            "publish tenant acme\0messages=0/1/1",
            "publish tenant acme\0messages=1/1",
            "publish tenant acme\0later=1",
            "publish nothing acme\0messages=1/1/1",
            "subscribe topic acme\0messages=1/1/1",
            "attached topic x\0gold",
            "x",
            "publish role r\0messages=1/1/1",
            "publish address 10.0.0.1\0messages=1/1/1",
            f"publish tenant acme\0messages={MOST_NUMBER + 1}/1/1",
            f"publish tenant acme\0messages=1/{'9' * 4000}/1",
            f"publish tenant acme\0messages=1/1/{'9' * 4000}",
        ]
    )
    assert policies.others is None
    assert in_force(policies) == {}


def test_changes_are_told_once_and_as_one_where_they_are_many() -> None:
    told: list[list[Change]] = []
    policies = Policies(tally=RuleTally(ALL))

    def change(changes: list[Change], put: PutRules) -> None:
        before = policies.others
        told.append(changes)
        assert policies.others is before, "lines of the access log are to end before"
        put()
        assert policies.others is not before

    rules = SharedRules(policies, change)
    rules.adopt([ACME])
    rules.adopt([ACME])
    rules.adopt([])
    rules.adopt([f"publish tenant {number}\0messages=1/1/1" for number in range(MANY_CHANGES + 1)])
    one = [Change("publish", Setting.TENANT, "acme")]
    assert told == [one, one, [Change("publish", Setting.PROXY, ""), Change("dispatch", Setting.PROXY, "")]]


def test_what_others_have_stays_when_all_that_is_written_here_is_replaced() -> None:
    policies, rules = rules_of()
    rules.adopt([ACME])
    aside = policies.copy()
    aside.put("publish", Setting.ROLE, "r", Value(Limit(rate(1)), "file"))
    policies.exchange(aside)
    assert set(in_force(policies)) == {"tenant", "role"}
    assert rules.total == 1


def test_what_is_here_for_a_target_is_told_as_a_line_has_it() -> None:
    policies, rules = rules_of((Setting.TENANT, "acme", Limit(rate(1000))))
    policies.attach({"acme": "gold"}, {})
    target, _, value = ACME.partition("\0")
    assert (rules.here(target), rules.here("publish tenant x"), rules.here("nonsense")) == (value, "", "")
    assert (rules.here("attached tenant acme"), rules.here("attached namespace a/b")) == ("gold", "")
    assert described(value) == "messages 1000/s, burst 100"
    assert described(written(Limit(size=rate(1), mode="reject"))) == "bytes 1/s, burst 1; reject"
    assert described(written(Limit(rate(10**9 + 1, burst=1)))) == "messages 1000000001/s, burst 1"
    assert described("gold") == "gold"


def test_what_is_written_at_a_level_that_is_not_shared_is_here_and_said_not_to_be() -> None:
    _, rules = rules_of((Setting.TENANT, "acme", Limit(rate(1000))), levels=ALL - {"tenant", "resource_group"})
    target, _, value = ACME.partition("\0")
    assert (rules.here(target), rules.shares(target), rules.total) == (value, False, 0)
    targets = ("publish namespace a/b", "attached tenant acme", "nonsense", "publish nothing x")
    assert [rules.shares(each) for each in targets] == [True, False, False, False]


def test_numbers_beyond_all_limits_are_told_to_people_as_they_came() -> None:
    value = f"messages={'9' * 4000}/1/1"
    assert described(value) == value
    assert described(f"messages={MOST_NUMBER}/1/{MOST_NUMBER}").startswith("messages 9.22337203685e+27/s")


def test_names_of_attachments_that_are_too_long_for_a_line_are_not_told() -> None:
    policies, rules = rules_of()
    policies.attach({"acme": "g" * MOST_NAME, "shop": "g"}, {"n" * MOST_NAME: "g"})
    assert (rules.total, rules.lines(0, 10**6)) == (1, ["attached tenant shop\0g"])
    policies.attach({}, {})
    assert (rules.digest, rules.total) == (0, 0)
    rules.adopt(["attached tenant acme\0" + "g" * MOST_NAME])
    assert policies.others is None


PEAK, LOWER_PEAK = rate(300), Rate(12_000, 60_000_000_000, 30)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (None, PEAK, PEAK),
        (PEAK, None, PEAK),
        (PEAK, LOWER_PEAK, LOWER_PEAK),
        (LOWER_PEAK, PEAK, LOWER_PEAK),
        (rate(300, burst=31), rate(300, burst=30), rate(300, burst=30)),
    ],
)
def test_of_two_values_with_one_rate_and_burst_that_with_the_lower_peak_holds(
    own: Rate | None, other: Rate | None, expected: Rate
) -> None:
    policies, rules = rules_of((Setting.TENANT, "acme", Limit(rate(100), rate(100), own, own)))
    rules.adopt([f"publish tenant acme\0{written(Limit(rate(100), rate(100), other, other))}"])
    ((limit, _),) = in_force(policies).values()
    assert limit == Limit(rate(100), rate(100), expected, expected)
