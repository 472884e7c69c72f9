import pytest

from limiter.levels import Setting
from proxy.policies.key import Key, Kind, namespace_of, rate_key


def test_a_key_reads_as_what_it_is_for() -> None:
    assert str(rate_key("publish", Setting.TOPIC, "persistent://a/b/c")) == "publish topic persistent://a/b/c"
    assert str(Key(Kind.GROUP, "", "gold")) == "group gold"


def test_keys_have_an_order_for_people() -> None:
    first, second = rate_key("dispatch", Setting.PROXY, ""), rate_key("publish", Setting.TENANT, "acme")

    assert sorted([second, first]) == [first, second]


@pytest.mark.parametrize(
    ("setting", "name", "namespace"),
    [
        (Setting.TOPIC, "persistent://acme/shop/orders", "acme/shop"),
        (Setting.TOPIC_OF_NAMESPACE, "acme/shop", "acme/shop"),
        (Setting.SUBSCRIPTION, "a@b@non-persistent://acme/shop/or@ders/x", "acme/shop"),
        (Setting.TENANT, "acme", None),
        (Setting.PROXY, "", None),
    ],
)
def test_a_key_knows_the_only_namespace_that_it_concerns(setting: Setting, name: str, namespace: str | None) -> None:
    assert namespace_of(rate_key("dispatch", setting, name)) == namespace
