from limiter.levels import Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.policies.policy_set import Attached, Difference, PolicySet, differences

_SHOP: PolicyTarget = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")


def saying(messages: int, origin: str = "rest") -> PolicySet:
    return PolicySet({_SHOP: Value(Limit(rate(messages)), origin)})


def test_equal_limits_are_no_difference_wherever_they_were_written() -> None:
    assert list(differences(saying(5, "file"), saying(5, "rest"))) == []


def test_each_value_is_told_with_both_sides_and_its_origin() -> None:
    key = "limits.namespaces.acme/shop.publish"
    assert list(differences(saying(5), saying(7))) == [Difference(key, "messages 5", "messages 7", "rest")]
    assert list(differences(PolicySet(), saying(7))) == [Difference(key, "", "messages 7", "rest")]
    assert list(differences(saying(5), PolicySet())) == [Difference(key, "messages 5", "", "")]


def test_attachments_differ_by_whose_they_are() -> None:
    gold = PolicySet(attached={("tenant", "acme"): Attached("gold", "file")}, groups=frozenset({"gold"}))
    silver = PolicySet(attached={("tenant", "acme"): Attached("silver", "rest")}, groups=frozenset({"silver"}))
    assert list(differences(gold, silver)) == [Difference("resource group of tenant acme", "gold", "silver", "rest")]


def test_a_group_of_which_nothing_else_is_said_differs_unless_it_cannot_be_ended() -> None:
    gold = PolicySet(groups=frozenset({"gold"}))
    key = "limits.resource_groups.gold"
    assert list(differences(gold, PolicySet())) == [Difference(key, "there", "", "")]
    assert list(differences(PolicySet(), gold)) == [Difference(key, "", "there", "")]
    assert list(differences(PolicySet(), PolicySet(groups=gold.groups, lasting=gold.groups))) == []
