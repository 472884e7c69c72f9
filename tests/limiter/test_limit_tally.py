"""The digest by which members of a fleet compare the limits that are written in them."""

from hypothesis import given
from hypothesis import strategies as st

from limiter.levels import SHAREABLE, Setting
from limiter.policies import LimitTally, Policies, Value
from limiter.token_bucket import NOTHING_PUBLISHED, Limit, Rate, rate

ALL = frozenset(SHAREABLE)


def tally_of(*limits: tuple[Setting, str, Limit], levels: frozenset[str] = ALL) -> LimitTally:
    tally = LimitTally(levels)
    policies = Policies(tally=tally)
    for setting, name, limit in limits:
        policies.put("publish", setting, name, Value(limit, "file"))
    return tally


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from([rate(1), rate(2)])), max_size=30))
def test_the_digest_does_not_depend_on_the_way(puts: list[tuple[str, Rate | None]]) -> None:
    tally = LimitTally(ALL)
    policies = Policies(tally=tally)
    for name, messages in puts:
        policies.put("publish", Setting.TENANT, name, None if messages is None else Value(Limit(messages), "rest"))
        for each in {name, *policies.groups_of_tenants}:
            policies.attach(Setting.TENANT, each, "gold" if messages and each == name else None)
    now = {name: messages for name, messages in dict(puts).items() if messages is not None}
    again = LimitTally(ALL)
    written = Policies(tally=again)
    for name, group in policies.groups_of_tenants.items():
        written.attach(Setting.TENANT, name, group)
    for name, messages in sorted(now.items()):
        written.put("publish", Setting.TENANT, name, Value(Limit(messages), "file"))
    assert (tally.digest, tally.total) == (again.digest, again.total)
    assert tally.total == len(now) + len(policies.groups_of_tenants)
    policies.copy().clear()
    assert tally.digest == again.digest
    policies.clear()
    assert (tally.digest, tally.total) == (0, 0)


def test_each_figure_of_a_limit_changes_the_digest() -> None:
    base, other = rate(1, burst=5), rate(2, burst=5)
    limits = [
        *(
            Limit(base),
            Limit(other),
            Limit(rate(1, burst=6)),
            Limit(size=base),
            Limit(base, base),
            Limit(base, None, other),
        ),
        *(Limit(base, base, None, other), Limit(base, mode="observe"), Limit(base, mode="reject")),
        Limit(base, published=NOTHING_PUBLISHED),
    ]
    digests = [tally_of((Setting.TENANT, "acme", limit)).digest for limit in limits]
    digests += [tally_of((setting, "acme", limits[0])).digest for setting in (Setting.ROLE, Setting.NAMESPACE)]
    assert len(set(digests)) == len(digests)


def test_limits_that_members_do_not_share_are_not_counted() -> None:
    not_shared = (Setting.PROXY, "", Limit(rate(1))), (Setting.ROLE, "r", Limit(rate(1)))
    tally = tally_of(*not_shared, (Setting.TENANT, "acme", Limit()), levels=ALL - {"role"})
    Policies(tally=tally).put("subscribe", Setting.NAMESPACE, "acme/shop", Value(Limit(rate(1)), "file"))
    assert (tally.digest, tally.total) == (0, 0)
