import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.levels import ANYBODY, LEVELS, Client, Setting
from limiter.names import EACH
from limiter.policies import Policies, Value
from limiter.token_bucket import Direction, Limit, rate
from protocol.topic_name import parse_topic

TOPIC = "persistent://t/n/x"
OF_NAMESPACE = Setting.TOPIC_OF_NAMESPACE


def value(messages: int, origin: str = "file") -> Value:
    return Value(Limit(rate(messages)), origin)


def policies_of(*values: tuple[Setting, str, Value], direction: Direction = "publish") -> Policies:
    policies = Policies()
    for setting, name, each in values:
        policies.put(direction, setting, name, each)
    return policies


def in_force(
    policies: Policies, topic: str = TOPIC, direction: Direction = "publish", client: Client = ANYBODY
) -> list[tuple[str, str, int, str]]:
    """What applies, outermost first: level, name, messages a second, source."""
    entries = policies.in_force(direction, parse_topic(topic), client)
    return [
        (entry.scope.level, entry.scope.name, entry.limit.messages.tokens, entry.source)
        for entry in entries
        if entry.limit.messages
    ]


def test_nothing_configured_limits_nothing() -> None:
    assert in_force(Policies()) == []


def test_a_namespaces_value_is_each_topics_own() -> None:
    policies = policies_of((OF_NAMESPACE, "t/n", value(500)))
    assert in_force(policies, "persistent://t/n/x") == [("topic", "persistent://t/n/x", 500, "namespace file")]
    assert in_force(policies, "persistent://t/n/y") == [("topic", "persistent://t/n/y", 500, "namespace file")]


def test_a_topics_value_comes_before_its_namespaces() -> None:
    policies = policies_of((Setting.TOPIC, TOPIC, value(7, "rest")), (OF_NAMESPACE, "t/n", value(500)))
    assert in_force(policies) == [("topic", TOPIC, 7, "topic rest")]


def test_a_total_applies_besides_and_stands_outside() -> None:
    policies = policies_of((Setting.TOPIC, TOPIC, value(7)), (Setting.NAMESPACE, "t/n", value(1000, "rest")))
    assert in_force(policies) == [("namespace", "t/n", 1000, "total rest"), ("topic", TOPIC, 7, "topic file")]


def test_every_level_applies_at_once_outermost_first() -> None:
    client = Client(producer_name="meter", role="billing", address="10.1.2.3")
    names = [
        (Setting.ADDRESS, "10.0.0.0/8"),
        (Setting.ROLE, "billing"),
        (Setting.PRODUCER, "meter"),
        (Setting.TOPIC_OF_BROKER, ""),
        (Setting.PARTITIONED_TOPIC, TOPIC),
        (Setting.RESOURCE_GROUP, "gold"),
        (Setting.NAMESPACE, "t/n"),
        (Setting.TENANT, "t"),
        (Setting.PROXY, ""),
    ]
    policies = policies_of(*((setting, name, value(1)) for setting, name in names))
    policies.groups_of_tenants["t"] = "gold"
    limits = in_force(policies, f"{TOPIC}-partition-3", client=client)
    assert [(level, name, source) for level, name, _, source in limits] == [
        ("proxy", "", "proxy file"),
        ("tenant", "t", "total file"),
        ("namespace", "t/n", "total file"),
        ("resource_group", "gold", "group file"),
        ("partitioned_topic", TOPIC, "total file"),
        ("topic", f"{TOPIC}-partition-3", "broker file"),
        ("producer", f"meter@{TOPIC}", "producer file"),
        ("role", "billing", "role file"),
        ("address", "10.1.2.3", "address file"),
    ]
    others = {level.word for level in LEVELS} - {level for level, *_ in limits}
    assert others == {"subscription", "exempt"}, "a level that no stream of this test has"


def test_what_is_not_known_of_a_client_limits_nobody() -> None:
    settings = (Setting.PRODUCER, Setting.ROLE)
    policies = policies_of(*((setting, name, value(1)) for setting in settings for name in (EACH, "")))
    policies.put("publish", Setting.ADDRESS, "0.0.0.0/0", value(1))
    assert in_force(policies) == []


@pytest.mark.parametrize(
    ("setting", "name", "level"),
    [(Setting.TENANT, "t", "tenant"), (Setting.PRODUCER, "meter", "producer"), (Setting.ROLE, "billing", "role")],
)
def test_a_star_is_for_all_that_have_no_value_of_their_own(setting: Setting, name: str, level: str) -> None:
    client = Client(producer_name="meter", role="billing")
    policies = policies_of((setting, EACH, value(5)))
    (limit,) = in_force(policies, client=client)
    assert (limit[0], limit[2:]) == (level, (5, f"each {'total' if level == 'tenant' else level} file"))
    policies.put("publish", setting, name, value(9))
    assert [messages for _, _, messages, _ in in_force(policies, client=client)] == [9]


def test_a_producer_name_has_one_limit_per_partitioned_topic() -> None:
    policies = policies_of((Setting.PRODUCER, "meter", value(5)))
    topics = ("t/n/x", "t/n/y", "t/n/x-partition-0", "t/n/x-partition-1")
    names = [in_force(policies, topic, client=Client(producer_name="meter"))[0][1] for topic in topics]
    assert names[0] == names[2] == names[3] != names[1]


def test_a_namespaces_own_resource_group_comes_before_its_tenants() -> None:
    policies = policies_of((Setting.RESOURCE_GROUP, "gold", value(5)), (Setting.RESOURCE_GROUP, "iron", value(1)))
    policies.groups_of_tenants["t"] = "iron"
    assert [name for _, name, *_ in in_force(policies)] == ["iron"]
    policies.groups_of_namespaces["t/n"] = "gold"
    assert [name for _, name, *_ in in_force(policies)] == ["gold"]


@pytest.mark.parametrize("attached", ["t", "t/n"])
def test_a_resource_group_limits_attached_tenants_and_namespaces(attached: str) -> None:
    policies = policies_of((Setting.RESOURCE_GROUP, "gold", value(5)))
    (policies.groups_of_namespaces if "/" in attached else policies.groups_of_tenants)[attached] = "gold"
    assert [name for _, name, *_ in in_force(policies)] == ["gold"]


def test_a_network_that_limits_nothing_does_not_hide_the_wider_one() -> None:
    policies = policies_of(
        (Setting.ADDRESS, "10.0.0.0/8", value(5)), (Setting.ADDRESS, "10.1.0.0/16", Value(Limit(), "rest"))
    )
    assert in_force(policies, client=Client(address="10.1.0.1")) == [("address", "10.1.0.1", 5, "address file")]


def test_each_address_has_its_own_limit_of_the_narrowest_network() -> None:
    policies = policies_of((Setting.ADDRESS, "10.0.0.0/8", value(5)), (Setting.ADDRESS, "10.1.0.0/16", value(7)))
    clients = [Client(address=address) for address in ("10.2.0.1", "10.1.0.1", "10.1.0.2", "11.0.0.1")]
    limits = [in_force(policies, client=client) for client in clients]
    assert [[(name, messages) for _, name, messages, _ in each] for each in limits] == [
        [("10.2.0.1", 5)],
        [("10.1.0.1", 7)],
        [("10.1.0.2", 7)],
        [],
    ]


def test_what_is_taken_back_limits_nobody() -> None:
    settings = [(Setting.ADDRESS, "10.0.0.0/8"), (Setting.PROXY, "")]
    policies = policies_of(*((setting, name, value(1)) for setting, name in settings))
    for setting, name in settings:
        policies.put("publish", setting, name, None)
    assert in_force(policies, client=Client(address="10.0.0.1")) == []


@pytest.mark.parametrize("set_there", range(4))
def test_a_subscriptions_value_is_the_narrowest_that_is_set(set_there: int) -> None:
    settings = [
        (Setting.SUBSCRIPTION, f"s@{TOPIC}", "subscription"),
        (Setting.SUBSCRIPTION_OF_TOPIC, TOPIC, "topic"),
        (Setting.SUBSCRIPTION_OF_NAMESPACE, "t/n", "namespace"),
        (Setting.SUBSCRIPTION_OF_BROKER, "", "broker"),
    ][set_there:]
    policies = policies_of(
        *((setting, name, value(number)) for number, (setting, name, _) in enumerate(settings, start=1)),
        direction="dispatch",
    )
    limits = in_force(policies, f"{TOPIC}-partition-1", "dispatch", Client(subscription="s"))
    assert limits == [("subscription", f"s@{TOPIC}-partition-1", 1, f"{settings[0][2]} file")]
    assert in_force(policies, direction="dispatch") == []


def test_a_subscription_is_limited_besides_its_topic() -> None:
    policies = policies_of((Setting.TOPIC, TOPIC, value(7)), (Setting.SUBSCRIPTION_OF_TOPIC, TOPIC, value(5)))
    limits = in_force(policies, client=Client(subscription="s"))
    assert [(level, messages) for level, _, messages, _ in limits] == [("topic", 7), ("subscription", 5)]


def test_a_value_that_limits_nothing_counts_as_not_set() -> None:
    """As with Pulsar, whose -1 for both messages and bytes at a topic leaves the namespace's value in force."""
    policies = policies_of((Setting.TOPIC, TOPIC, Value(Limit(), "rest")), (OF_NAMESPACE, "t/n", value(5)))
    assert in_force(policies) == [("topic", TOPIC, 5, "namespace file")]
    nothing = policies_of((Setting.TOPIC, TOPIC, Value(Limit(), "rest")), (Setting.TENANT, "t", Value(Limit(), "rest")))
    assert in_force(nothing) == []


def test_values_are_not_mixed_between_levels() -> None:
    """As with Pulsar: a topic's bytes alone leave it without the namespace's messages."""
    own = Value(Limit(size=rate(1000)), "file")
    policies = policies_of((Setting.TOPIC, TOPIC, own), (OF_NAMESPACE, "t/n", value(5)))
    (entry,) = policies.in_force("publish", parse_topic(TOPIC))
    assert entry.limit == own.limit


def test_directions_never_meet() -> None:
    policies = policies_of((OF_NAMESPACE, "t/n", value(5)), direction="dispatch")
    assert in_force(policies) == []
    assert in_force(policies, direction="dispatch") == [("topic", TOPIC, 5, "namespace file")]


def test_a_partition_has_the_topics_value_and_a_limit_of_its_own() -> None:
    policies = policies_of((Setting.TOPIC, TOPIC, value(7)))
    for index in (0, 12):
        name = f"{TOPIC}-partition-{index}"
        assert in_force(policies, name) == [("topic", name, 7, "topic file")]


@pytest.mark.parametrize(
    "topic",
    [
        "persistent://t/n/__change_events",
        "persistent://t/n/__change_events-partition-1",
        "persistent://pulsar/system/anything",
        "persistent://t/n/__transaction_buffer_snapshot",
    ],
)
def test_pulsars_own_topics_are_under_a_limit_of_their_own_and_no_other(topic: str) -> None:
    namespace, whole = parse_topic(topic).namespace_name, parse_topic(topic).partitioned
    policies = policies_of(
        (Setting.TOPIC, topic, value(1)),
        (OF_NAMESPACE, namespace, value(1)),
        (Setting.NAMESPACE, namespace, value(1)),
        (Setting.PROXY, "", value(1)),
        (Setting.ROLE, "billing", value(1)),
    )
    assert in_force(policies, topic, client=Client(role="billing")) == []

    policies.put("publish", Setting.EXEMPT, "", value(9))
    assert in_force(policies, topic, client=Client(role="billing")) == [("exempt", whole, 9, "exempt file")]


def test_names_that_only_look_like_pulsars_own_have_no_limit_of_its_own() -> None:
    policies = policies_of((Setting.EXEMPT, "", value(9)), (Setting.PROXY, "", value(1)))
    for topic in ("persistent://t/n/__change_events-partition-x", "non-persistent://t/n/__change_events", TOPIC):
        assert in_force(policies, topic) == [("proxy", "", 1, "proxy file")]


@given(
    topic=st.none() | st.integers(1, 9),
    namespace=st.none() | st.integers(1, 9),
    broker=st.none() | st.integers(1, 9),
    total=st.none() | st.integers(1, 9),
)
def test_the_first_level_that_is_set_wins_and_the_total_is_apart(topic, namespace, broker, total) -> None:
    settings = [
        (Setting.TOPIC, TOPIC, topic),
        (OF_NAMESPACE, "t/n", namespace),
        (Setting.TOPIC_OF_BROKER, "", broker),
        (Setting.NAMESPACE, "t/n", total),
    ]
    policies = policies_of(*((setting, name, value(number)) for setting, name, number in settings if number))
    expected = [number for number in (total, topic or namespace or broker) if number]
    assert [number for _, _, number, _ in in_force(policies)] == expected


def test_cleared_nothing_is_left_of_them() -> None:
    policies = policies_of((Setting.RESOURCE_GROUP, "gold", value(5)), (Setting.ADDRESS, "10.0.0.0/8", value(5)))
    policies.groups_of_tenants["t"] = policies.groups_of_namespaces["t/n"] = "gold"
    assert len(in_force(policies, client=Client(address="10.1.2.3"))) == 2
    policies.clear()
    assert policies == Policies()
    policies.put("publish", Setting.RESOURCE_GROUP, "gold", value(5))
    assert in_force(policies, client=Client(address="10.1.2.3")) == []


def test_the_narrowest_subscribe_rate_holds_and_system_topics_have_none() -> None:
    policies = Policies()
    topic = parse_topic("persistent://acme/shop/orders-partition-1")
    assert policies.subscribe_rate(topic) is None

    for number, (setting, name, source) in enumerate(
        [
            (Setting.TOPIC_OF_BROKER, "", "broker rest"),
            (Setting.TOPIC_OF_NAMESPACE, "acme/shop", "namespace rest"),
            (Setting.TOPIC, "persistent://acme/shop/orders", "topic rest"),
        ],
        start=1,
    ):
        policies.put("subscribe", setting, name, Value(Limit(rate(number)), "rest"))
        assert policies.subscribe_rate(topic) == (rate(number), source)

    assert policies.subscribe_rate(parse_topic("persistent://acme/shop/__change_events")) is None


def test_a_subscribe_rate_that_limits_nothing_counts_as_not_set() -> None:
    policies = Policies()
    policies.put("subscribe", Setting.TOPIC, "persistent://acme/shop/orders", Value(Limit(), "rest"))
    policies.put("subscribe", Setting.TOPIC_OF_NAMESPACE, "acme/shop", Value(Limit(rate(2)), "file"))
    assert policies.subscribe_rate(parse_topic("acme/shop/orders")) == (rate(2), "namespace file")


def test_what_is_changed_in_a_copy_comes_into_force_in_one_step() -> None:
    policies = policies_of((Setting.TOPIC, TOPIC, value(7)), (Setting.ADDRESS, "10.0.0.0/8", value(5)))
    policies.groups_of_tenants["t"] = "gold"
    aside = policies.copy()
    aside.put("publish", Setting.TOPIC, TOPIC, None)
    aside.put("publish", OF_NAMESPACE, "t/n", value(9))
    aside.put("publish", Setting.ADDRESS, "10.1.0.0/16", value(6))
    aside.groups_of_tenants.clear()

    seen = []
    for _ in range(2):
        limits = in_force(policies, client=Client(address="10.1.2.3"))
        seen.append(([messages for _, _, messages, _ in limits], policies.groups_of_tenants))
        policies.exchange(aside)

    assert seen == [([7, 5], {"t": "gold"}), ([9, 6], {})]
    assert [messages for _, _, messages, _ in in_force(aside, client=Client(address="10.1.2.3"))] == [9, 6]
