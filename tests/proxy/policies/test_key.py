from limiter.levels import Setting
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, rate_key


def test_a_key_reads_as_what_it_is_for() -> None:
    assert str(rate_key("publish", Setting.TOPIC, "persistent://a/b/c")) == "publish topic persistent://a/b/c"
    assert str(PolicyKey(PolicyKind.GROUP, "", "gold")) == "group gold"


def test_a_key_of_a_layer_names_the_layer_in_words() -> None:
    name = "persistent://a/b/c"
    assert str(rate_key("publish", Setting.TOPIC, name, Layer.TENANT)) == f"publish topic {name} (tenant)"
    assert str(rate_key("dispatch", Setting.TOPIC, name, Layer.GLOBAL)) == f"dispatch topic {name} (global)"


def test_keys_have_an_order_for_people() -> None:
    first, second = rate_key("dispatch", Setting.PROXY, ""), rate_key("publish", Setting.TENANT, "acme")

    assert sorted([second, first]) == [first, second]
