"""Which of their rules not all members have: told by name, to all, whatever is lost; and bounded."""

import sys
from dataclasses import replace

import pytest

from fleet.coordinator import Coordinator
from fleet.member import FleetMember
from fleet.messages import MOST_MESSAGE, MOST_RULE, RULE_PAGE, BadMessage, Differing, Grants, MemberReport, RulesReport
from fleet.rules import (
    MOST_DIFFERING,
    MOST_HOLD,
    MOST_PATIENCE,
    MOST_RULE_BYTES,
    MOST_RULES,
    MemberRules,
    RuleComparison,
    digest_of,
)
from fleet.settings import FleetSettings
from tests.fleet.world import MS, SECOND, Process, Rules, World

ACME = "publish tenant acme\0messages=1000/1000000000/100"
LOWER = "publish tenant acme\0messages=10/1000000000/1"
SHOP = "publish tenant shop\0messages=5/1000000000/1"


@pytest.fixture
def world() -> World:
    world = World()
    world.elect()
    return world


def heard(process: Process) -> dict[str, str]:
    return dict(process.member.rules.differing)


def test_a_rule_that_one_member_lacks_is_named_to_all_within_two_cycles_or_four_after_a_change(world: World) -> None:
    one, other = world.join(rules={ACME, SHOP}), world.join(rules={SHOP})
    world.run(500 * MS)
    assert heard(one) == heard(other) == {ACME: "proxy-1"}
    world.run(5 * SECOND)
    one.rules.written = {ACME, SHOP, LOWER}
    world.run(SECOND)
    assert heard(one) == heard(other) == {ACME: "proxy-1", LOWER: "proxy-1"}
    one.rules.written = {SHOP}
    world.run(500 * MS)
    assert heard(one) == heard(other) == {}


def test_a_change_that_all_make_at_about_the_same_time_is_no_difference(world: World) -> None:
    members = [world.join(rules={ACME, SHOP}) for _ in range(3)]
    world.run(6 * SECOND)
    for rules in ({ACME}, {ACME, LOWER}, set[str](), {SHOP}) * 5:
        for member in members:
            member.rules.written = rules
            world.run(40 * MS)
        for _ in range(30):
            assert [heard(member) for member in members] == [{}, {}, {}]
            world.run(20 * MS)


def test_a_member_whose_rules_change_all_the_time_is_compared_all_the_same(world: World) -> None:
    one, other = world.join(rules=set()), world.join(rules=set())
    for number in range(100):
        one.rules.written = {ACME, f"publish tenant t{number}\0x"}
        world.run(100 * MS)
    assert ACME in heard(other)


def test_two_values_for_the_same_differ_both(world: World) -> None:
    one, other = world.join(rules={ACME}), world.join(rules={LOWER})
    world.run(SECOND)
    assert heard(one) == heard(other) == {ACME: "proxy-1", LOWER: "proxy-2"}
    assert world.leader is not None
    rules = world.leader.comparison.differing_rules(10)
    assert [(rule.having, rule.lacking) for rule in rules] == [(["proxy-2"], ["proxy-1"]), (["proxy-1"], ["proxy-2"])]


def test_members_that_have_the_same_tell_no_more_than_a_digest(world: World) -> None:
    members = [world.join(rules={f"publish tenant t{number}\0x" for number in range(1000)}) for _ in range(3)]
    before = world.bytes
    world.run(10 * SECOND)
    assert world.bytes - before < 10 * SECOND // (250 * MS) * 3 * 300
    assert all(not heard(one) for one in members)


def test_a_member_of_an_earlier_version_is_not_accused_and_others_are_compared_beside_it(world: World) -> None:
    old, one = world.join(), world.join(rules={ACME})
    world.run(6 * SECOND)
    assert heard(one) == heard(old) == {}
    assert world.leader is not None
    other = world.join(rules=set())
    world.run(SECOND)
    assert heard(one) == heard(other) == {ACME: "proxy-2"}
    assert heard(old) == {}
    assert [rule.lacking for rule in world.leader.comparison.differing_rules(10)] == [["proxy-3"]]


def test_behind_a_takeover_by_an_earlier_version_nothing_is_compared_and_nothing_held(world: World) -> None:
    one, other = world.join(rules={ACME}), world.join(rules=set())
    world.run(6 * SECOND)
    assert heard(other) == {ACME: "proxy-1"}
    coordinator = world.elect()
    empty = coordinator._empty
    coordinator._empty = lambda: replace(empty(), compares=False)  # type: ignore[method-assign]
    coordinator.comparison.page_due = lambda *_args, **_named: None  # type: ignore[method-assign]
    world.run(SECOND)
    assert heard(one) == heard(other) == {}
    assert not other.member.rules.is_compared
    revision = other.member.rules.revision
    world.run(5 * SECOND)
    assert other.member.rules.revision == revision
    world.elect()
    world.run(SECOND)
    assert heard(one) == heard(other) == {ACME: "proxy-1"}
    assert other.member.rules.is_compared


def test_what_differed_before_a_takeover_differs_until_all_are_known_again(world: World) -> None:
    one, other = world.join(rules={ACME}), world.join(rules=set())
    world.run(6 * SECOND)
    one.cut = True
    world.elect()
    for _ in range(30):
        world.run(100 * MS)
        assert heard(other) == {ACME: "proxy-1"}
    one.cut = False
    world.run(6 * SECOND)
    assert heard(other) == {ACME: "proxy-1"}
    world.crash(one)
    world.run(3 * SECOND)
    assert heard(other) == {}


def test_new_rules_of_a_member_differ_no_less_than_its_former_ones_until_they_are_known(world: World) -> None:
    one, other = world.join(rules={ACME}), world.join(rules=set())
    world.run(6 * SECOND)
    one.rules.written = {ACME} | {f"publish topic {number:05} {'x' * 1000}\0y" for number in range(300)}
    while len(heard(other)) < 301:
        assert ACME in heard(other)
        world.run(5 * MS)
    assert heard(other) == dict.fromkeys(one.rules.written, "proxy-1")


def test_many_rules_come_in_pages_that_fit_a_message_also_where_a_fifth_is_lost(world: World) -> None:
    sizes: list[int] = []
    send = world._send_grants

    def count(grants: Grants) -> None:
        sizes.append(len(grants.encode()))
        send(grants)

    world._send_grants = count  # type: ignore[method-assign]
    world.loss = world.grant_loss = 0.2
    rules = {f"publish topic {number:05} {'x' * 100}\0y" for number in range(3000)}
    one, other = world.join(rules=rules), world.join(rules={SHOP})
    world.run(20 * SECOND)
    assert set(heard(other)) == set(heard(one)) == rules | {SHOP}
    assert max(sizes) < MOST_MESSAGE // 4


def test_more_than_are_told_are_counted() -> None:
    compared, member = RuleComparison(0), MemberRules(Rules())
    rules = Rules({f"{number:06}\0v" for number in range(MOST_DIFFERING + 7)})
    compared.hear(1, "one", RulesReport(rules.digest, rules.total), 0)
    compared.hear(2, "two", RulesReport(0, 0), 0)
    compared.compare(0)
    while first := compared.wants(1):
        compared.hear(
            1, "one", RulesReport(rules.digest, rules.total, first=first - 1, lines=rules.lines(first - 1, 10**5)), 0
        )
    compared.compare(0)
    now = 0
    while (told := compared.page_due(now, 1, all_known=True)) is not None:
        member.take(told)
        reported = member.report()
        assert reported is not None
        compared.hear(1, "one", reported._replace(digest=rules.digest, total=rules.total), 0)
        compared.hear(2, "two", reported._replace(digest=0, total=0), 0)
        now += 1
    assert (len(member.differing), member.unnamed) == (MOST_DIFFERING, 7)


def test_a_coordinator_that_tells_more_than_may_be_told_is_not_believed() -> None:
    member = MemberRules(Rules())
    assert not member.take(Differing(9, MOST_DIFFERING + 1, 0, settled=True, first=0, lines=[ACME], having=["m"]))
    reported = member.report()
    assert reported is not None
    assert (reported.version, reported.taken, member.differing) == (0, 0, {})


def test_rules_that_are_too_many_are_not_asked_for_and_the_member_is_counted() -> None:
    compared = RuleComparison(0)
    for incarnation, total in enumerate((1, MOST_RULES + 1), start=1):
        compared.hear(incarnation, f"m{incarnation}", RulesReport(incarnation, total), 0)
    compared.compare(0)
    assert (compared.wants(1), compared.wants(2), compared.uncompared) == (1, 0, 1)


def test_who_told_half_of_its_rules_and_went_is_replaced_from_the_start() -> None:
    compared = RuleComparison(0)
    for incarnation, digest in ((1, 7), (2, 7), (3, 8)):
        compared.hear(incarnation, f"m{incarnation}", RulesReport(digest, 2), 0)
    compared.compare(0)
    compared.hear(1, "m1", RulesReport(7, 2, lines=["a\0x"]), 0)
    assert (compared.wants(1), compared.wants(2)) == (2, 0)
    compared.keep({2, 3})
    compared.compare(0)
    assert compared.wants(2) == 1


def test_what_is_told_of_rules_is_read_as_it_was_written_and_checked() -> None:
    rules = RulesReport(2**64 - 1, 3, 5, 2, unsettled=True, first=1, lines=[ACME, "ö"])
    report = MemberReport("f", "m", 1, 1, 1, 0, rules=rules)
    assert MemberReport.decode(report.encode()).rules == rules
    assert MemberReport.decode(MemberReport("f", "m", 1, 1, 1, 0).encode()).rules is None
    differing = Differing(9, 2, 1, settled=True, first=0, lines=[ACME], having=["m"])
    grants = Grants("f", "c", 1, 1, differing=differing)
    assert Grants.decode(grants.encode()).differing == differing
    assert Grants.decode(Grants("f", "c", 1, 1).encode()).differing is None
    for wrong in (differing._replace(having=[]), differing._replace(lines=["x" * (MOST_RULE + 1)])):
        with pytest.raises(BadMessage):
            Grants.decode(Grants("f", "c", 1, 1, differing=wrong).encode())


def test_a_coordinator_that_may_not_grant_tells_nothing_of_rules() -> None:
    """Another one may coordinate, who knows other members."""
    settings = FleetSettings("f")
    coordinator = Coordinator(settings, "c", 1, 0)
    for name, own in (("a", Rules({ACME})), ("b", Rules())):
        member = FleetMember(settings, name, 1 + len(own.written), 0, own)
        member.take(Grants("f", "c", 1, 1), 0)
        coordinator.hear(member.report({}, (), 0), 0)
    late = settings.lease_ns + 1
    assert all(grants.differing is None and not grants.grants for grants in coordinator.grant(late))


MANY = {f"publish topic {number:05} {'x' * 100}\0y" for number in range(3000)}
"""Some pages of rules."""


def test_a_member_that_takes_no_page_keeps_nobody_from_the_next_one(world: World) -> None:
    one, other, broken = (world.join(rules=rules) for rules in (MANY, {SHOP}, {SHOP}))
    broken.member.rules.take = lambda page: False  # type: ignore[method-assign]
    world.run(10 * SECOND)
    assert set(heard(one)) == set(heard(other)) == MANY | {SHOP}
    before = world.bytes
    world.run(10 * SECOND)
    assert world.bytes - before < 10 * 4 * 3 * 2 * RULE_PAGE  # one page in each cycle, to each of them


def test_what_a_member_says_to_have_taken_has_no_page_told_more_than_once_in_a_cycle() -> None:
    compared = compared_with(MANY, cycle := 250 * MS)
    told = [compared.page_due(0, cycle, all_known=True)]
    assert told[0] is not None
    for number in range(1000):
        compared.hear(2, "m2", RulesReport(0, 0, told[0].version, number * 3), number)
        told.append(compared.page_due(number, cycle, all_known=True))
    firsts = [one.first for one in told if one is not None]
    assert sorted(firsts) == sorted(set(firsts))
    assert 2 < len(firsts) <= 1 + len(MANY) * 135 // RULE_PAGE


def compared_with(rules: set[str], patience: int = 0) -> RuleComparison:
    """Two members are compared, of which one has these rules, and the other none."""
    compared, lines = RuleComparison(patience), sorted(rules)
    compared.hear(1, "m1", RulesReport(digest_of(rules), len(rules)), 0)
    compared.hear(2, "m2", RulesReport(0, 0), 0)
    compared.compare(0)
    compared.hear(1, "m1", RulesReport(digest_of(rules), len(rules), lines=lines), 0)
    compared.compare(0)
    assert list(compared.differing) == lines[:MOST_DIFFERING]
    return compared


def test_who_tells_nothing_of_rules_any_more_is_compared_no_more() -> None:
    compared = compared_with({"a\0x", "b\0y"})
    assert [rule.lacking for rule in compared.differing_rules(9)] == [["m2"], ["m2"]]
    compared.hear(2, "m2", None, 0)
    compared.compare(0)
    assert compared.differing == []


def test_who_tells_no_lines_has_nobody_held_by_a_limit_that_nobody_has_any_more(world: World) -> None:
    one, other = world.join(rules={ACME}), world.join(rules={ACME})
    broken = world.join(rules={SHOP})
    broken.rules.lines = lambda first, most: []  # type: ignore[method-assign]
    world.run(6 * SECOND + MOST_HOLD * 500 * MS)
    for _ in range(3):
        one.rules.written = {ACME, LOWER}
        world.run(SECOND)
        assert heard(other) == {LOWER: "proxy-1"}
        one.rules.written = {ACME}
        world.run(SECOND)
        assert heard(one) == heard(other) == {}
    world.run(10 * SECOND)
    assert world.leader is not None
    assert world.leader.comparison.uncompared == 1


def test_behind_a_takeover_who_tells_no_lines_has_what_differed_held_for_no_longer_than_a_bound(world: World) -> None:
    one, other = world.join(rules={ACME}), world.join(rules=set())
    broken = world.join(rules={SHOP})
    world.run(6 * SECOND)
    broken.rules.lines = lambda first, most: []  # type: ignore[method-assign]
    world.elect()
    world.run(6 * SECOND)
    assert heard(other) == {ACME: "proxy-1", SHOP: "proxy-3"}
    one.rules.written = set()
    world.run(MOST_HOLD * 500 * MS)
    assert heard(one) == heard(other) == {}


@pytest.mark.parametrize("told", [[], ["x\0x", "y\0y"], [ACME, ACME], [ACME]], ids=["none", "others", "twice", "one"])
def test_who_tells_others_digest_and_not_their_lines_is_passed_over(world: World, told: list[str]) -> None:
    liar = world.join(rules={ACME, SHOP})
    liar.rules.lines = lambda first, most: told[first:]  # type: ignore[method-assign]
    world.run(SECOND)
    one, other = world.join(rules={ACME, SHOP}), world.join(rules={SHOP})
    world.run(10 * SECOND)
    assert set(heard(one)) == set(heard(other)) == {ACME}


@pytest.mark.parametrize("total", [0, 1, 3, MOST_RULES + 1])
def test_who_tells_others_digest_and_another_number_keeps_them_from_nothing(total: int) -> None:
    compared, lines = RuleComparison(0), [ACME, SHOP]
    digest = digest_of(lines)
    members = {1: RulesReport(digest, total), 2: RulesReport(digest, 2), 3: RulesReport(0, 0)}
    for now in range(10):
        for incarnation, report in members.items():
            wants = compared.wants(incarnation)
            compared.hear(
                incarnation,
                f"m{incarnation}",
                report._replace(first=max(0, wants - 1), lines=lines[wants - 1 :] if wants else []),
                now,
            )
        compared.compare(now)
    assert list(compared.differing) == lines


def test_who_tells_a_line_at_a_time_gains_no_time_by_it() -> None:
    compared = RuleComparison(SECOND)
    for incarnation, digest in ((1, 7), (2, 7), (3, 8)):
        compared.hear(incarnation, f"m{incarnation}", RulesReport(digest, 1000), 0)
    compared.compare(0)
    for number in range(MOST_PATIENCE + 2):
        compared.hear(1, "m1", RulesReport(7, 1000, first=number, lines=["a"]), number * SECOND)
        compared.compare(number * SECOND)
    assert (compared.wants(1), compared.wants(2)) == (0, 1)


def test_what_was_read_of_a_page_is_not_kept_with_its_member() -> None:
    """A thousand members may send a MiB each."""
    compared, lines = RuleComparison(0), ["x" * 100] * 1000
    before = sys.getrefcount(lines)
    compared.hear(1, "m1", RulesReport(1, 5, lines=lines), 0)
    assert sys.getrefcount(lines) == before


def test_rules_of_more_bytes_than_are_kept_are_refused_once_and_the_member_is_counted() -> None:
    compared, page = RuleComparison(0), ["x" * MOST_RULE] * 100
    compared.hear(1, "m1", RulesReport(1, MOST_RULES // 2), 0)
    compared.hear(2, "m2", RulesReport(0, 0), 0)
    compared.compare(0)
    asked = 0
    while wants := compared.wants(1):
        compared.hear(1, "m1", RulesReport(1, MOST_RULES // 2, first=wants - 1, lines=page), 0)
        compared.compare(0)
        asked += 1
    assert asked == MOST_RULE_BYTES // (100 * MOST_RULE) + 1
    compared.hear(3, "m3", RulesReport(0, 0), 0)
    compared.compare(0)
    assert (compared.wants(1), compared.uncompared) == (0, 1)


def test_rules_that_replace_others_need_no_room_beside_them() -> None:
    compared = compared_with({f"{number}" for number in range(MOST_RULES // 2 + 1)})
    before = list(compared.differing)
    compared.hear(1, "m1", RulesReport(7, MOST_RULES // 2 + 1), 0)
    compared.compare(0)
    assert (compared.differing, compared.wants(1), compared.uncompared) == (before, 1, 0)


def test_a_page_beyond_what_is_to_be_told_is_not_taken() -> None:
    member = MemberRules(Rules({ACME}))
    for first in range(0, 1000, 100):
        lines = [f"{first + at}" for at in range(100)]
        member.take(Differing(5, 150, 0, settled=True, first=first, lines=lines, having=["x"] * 100))
    reported = member.report()
    assert reported is not None
    assert reported.taken == 100
    assert not member.differing
