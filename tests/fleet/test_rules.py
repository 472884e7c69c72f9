"""Which of their rules not all members have: told by name, to all, whatever is lost; and bounded."""

import pytest

from fleet.coordinator import Coordinator
from fleet.member import FleetMember, FleetSettings
from fleet.messages import MOST_MESSAGE, MOST_RULE, BadMessage, Differing, Grants, MemberReport, RulesReport
from fleet.rules import MOST_DIFFERING, MOST_RULES, ComparedRules, MemberRules
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
    rules = world.leader.rules.rules(10)
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
    assert [rule.lacking for rule in world.leader.rules.rules(10)] == [["proxy-3"]]


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
    compared, member = ComparedRules(0), MemberRules(Rules())
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
    while (told := compared.told(now, 1, is_whole=True)) is not None:
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
    compared = ComparedRules(0)
    for incarnation, total in enumerate((1, MOST_RULES + 1), start=1):
        compared.hear(incarnation, f"m{incarnation}", RulesReport(incarnation, total), 0)
    compared.compare(0)
    assert (compared.wants(1), compared.wants(2), compared.uncompared) == (1, 0, 1)


def test_who_told_half_of_its_rules_and_went_is_replaced_from_the_start() -> None:
    compared = ComparedRules(0)
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
