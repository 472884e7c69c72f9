from limiter.levels import Setting
from proxy.policies.keys import PolicyKey, PolicyKind, rate_key


def test_a_key_reads_as_what_it_is_for() -> None:
    assert str(rate_key("publish", Setting.TOPIC, "persistent://a/b/c")) == "publish topic persistent://a/b/c"
    assert str(PolicyKey(PolicyKind.GROUP, "", "gold")) == "group gold"


def test_keys_have_an_order_for_people() -> None:
    first, second = rate_key("dispatch", Setting.PROXY, ""), rate_key("publish", Setting.TENANT, "acme")

    assert sorted([second, first]) == [first, second]
