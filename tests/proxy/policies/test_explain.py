from limiter.levels import Client, Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.policies.bodies import DispatchRate, PublishRate, SubscribeRate, kept_as_own, kept_as_pulsar_s
from proxy.policies.explain import Explained, ExplainedGroup, ExplainedValue, LevelLines, explain, explain_subscribes
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import PolicyService
from tests.proxy.policies.layered import CLIENTS, ORDERS, a_service

_ORDERS = parse_topic(ORDERS)
_FILE = FilePolicies(
    {
        ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop"): Value(Limit(rate(5)), "file"),
        ("publish", Setting.TOPIC_OF_BROKER, ""): Value(Limit(rate(6)), "file"),
        ("publish", Setting.ADDRESS, "10.0.0.0/8"): Value(Limit(rate(7)), "file"),
        ("publish", Setting.ADDRESS, "10.1.0.0/16"): Value(Limit(rate(8)), "file"),
        ("subscribe", Setting.TOPIC_OF_BROKER, ""): Value(Limit(rate(2, burst=2)), "file"),
    },
    {"acme": "gold"},
    {},
)


def lines(explained: Explained, level: str) -> list[tuple[str, str, str, str]]:
    """Setting, origin, state, what hides it."""
    (values,) = [level_lines.lines for level_lines in explained.levels if level_lines.level == level]
    return [(line.setting.value, line.origin, line.state, line.by) for line in values]


def with_set(*values: tuple[PolicyKey, str]) -> PolicyService:
    return a_service(_FILE, list(values))


def test_the_narrowest_place_holds_and_hides_the_others() -> None:
    service = with_set((rate_key("publish", Setting.TOPIC, ORDERS), kept_as_own({"messages": 3})))
    assert lines(explain(service, "publish", _ORDERS), "topic") == [
        ("topic", "rest", "holds", ""),
        ("topic_of_namespace", "file", "hidden", f"topic {ORDERS} (rest)"),
        ("topic_of_broker", "file", "hidden", f"topic {ORDERS} (rest)"),
    ]


def test_upper_layer_that_limits_nothing_hides_the_lower() -> None:
    key = rate_key("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    service = with_set((key, kept_as_pulsar_s(PublishRate())))
    assert lines(explain(service, "publish", _ORDERS), "topic") == [
        ("topic_of_namespace", "rest", "no limit", ""),
        ("topic_of_namespace", "file", "hidden", "topic_of_namespace acme/shop (rest)"),
        ("topic_of_broker", "file", "holds", ""),
    ]


def test_dynamic_and_global_layers_are_told_apart() -> None:
    service = with_set(
        (PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages"), "9"),
        (rate_key("publish", Setting.TOPIC, ORDERS, Layer.GLOBAL), kept_as_pulsar_s(PublishRate(4))),
        (rate_key("publish", Setting.TOPIC, ORDERS), kept_as_pulsar_s(PublishRate())),
    )
    assert [line[:3] for line in lines(explain(service, "publish", _ORDERS), "topic")] == [
        ("topic", "rest", "hidden"),
        ("topic", "global", "holds"),
        ("topic_of_namespace", "file", "hidden"),
        ("topic_of_broker", "dynamic", "hidden"),
        ("topic_of_broker", "file", "hidden"),
    ]


def test_of_networks_the_narrowest_around_the_address_holds() -> None:
    service = with_set()
    explained = explain(service, "publish", _ORDERS, Client(address="10.1.2.3"))
    (level,) = [level_lines for level_lines in explained.levels if level_lines.level == "address"]
    assert level.lines == (
        ExplainedValue(Setting.ADDRESS, "10.1.0.0/16", "file", {"messages": 8}, "holds"),
        ExplainedValue(Setting.ADDRESS, "10.0.0.0/8", "file", {"messages": 7}, "hidden", "address 10.1.0.0/16 (file)"),
    )
    mapped = explain(service, "publish", _ORDERS, Client(address="::ffff:10.1.2.3"))
    assert mapped.levels == explained.levels


def test_what_the_stream_has_not_is_not_asked_for() -> None:
    explained = explain(with_set(), "publish", _ORDERS)
    assert [level_lines.level for level_lines in explained.levels if not level_lines.asked] == [
        "subscription",
        "producer",
        "role",
        "address",
    ]


def test_the_group_and_how_the_topic_comes_to_it() -> None:
    assert explain(with_set(), "publish", _ORDERS).group == ExplainedGroup("gold", "tenant acme", "file")

    service = with_set((PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop"), "silver"))
    assert explain(service, "publish", _ORDERS).group == ExplainedGroup("silver", "namespace acme/shop", "rest")
    assert explain(service, "publish", parse_topic("other/ns/x")).group is None


def test_topics_of_pulsars_own_are_exempt_but_for_their_own_limit() -> None:
    system = parse_topic("persistent://acme/shop/__change_events")
    explained = explain(with_set(), "publish", system)
    assert (explained.is_exempt, explained.levels) == (
        True,
        (LevelLines("exempt", asked=True, lines=(), name=system.full),),
    )
    assert not explain_subscribes(with_set(), system).asked

    key = rate_key("publish", Setting.EXEMPT, "")
    (level,) = explain(with_set((key, kept_as_own({"messages": 50}))), "publish", system).levels
    assert level.lines == (ExplainedValue(Setting.EXEMPT, "", "rest", {"messages": 50}, "holds"),)


def test_subscribe_rates_have_a_precedence_too() -> None:
    key = rate_key("subscribe", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
    level_lines = explain_subscribes(with_set((key, kept_as_pulsar_s(SubscribeRate(5)))), _ORDERS)
    assert [(line.origin, line.limit, line.state) for line in level_lines.lines] == [
        ("rest", {"messages": "5/30s"}, "holds"),
        ("file", {"messages": 2}, "hidden"),
    ]


def test_what_holds_is_what_the_limiter_is_given() -> None:
    service = with_set(
        (rate_key("dispatch", Setting.SUBSCRIPTION, f"audit@{ORDERS}"), kept_as_pulsar_s(DispatchRate(3))),
        (rate_key("publish", Setting.ROLE, "billing"), kept_as_own({"bytes": "1KB"})),
        (rate_key("publish", Setting.TENANT, "*"), kept_as_own({"messages": 1})),
    )
    for direction in ("publish", "dispatch"):
        for client in CLIENTS:
            explained = explain(service, direction, _ORDERS, client)
            holders = [
                (level_lines.level, line.origin)
                for level_lines in explained.levels
                for line in level_lines.lines
                if line.state == "holds"
            ]
            held = service.layers.policies.in_force(direction, _ORDERS, client)
            assert holders == [(entry.scope.level, entry.source.split()[-1]) for entry in held]
