import pytest

from compliance.figures import rates
from compliance.figures.scopes import scoped
from compliance.figures.traffic import ROLES, role_facts
from tests.compliance.arrow import lines_of, summed_of
from tests.compliance.planted import PlantedLog, frame

TOPIC = "persistent://acme/orders/new-partition-2"


def scopes(**more):
    log = PlantedLog(topic=TOPIC)
    log.interval(1, **more)
    return rows_of(lines_of([log]))


def rows_of(lines):
    """The name and the member at each level."""
    return {
        level: (named["name"][0].as_py(), named["member"][0].as_py()) for level, named in scoped(lines) if len(named)
    }


def test_a_producer_has_its_name_at_every_level():
    assert scopes(client_role="app", client_address="192.0.2.7:41000") == {
        "proxy": ("", "acme"),
        "tenant": ("acme", "acme/orders"),
        "namespace": ("acme/orders", TOPIC),
        "partitioned_topic": ("persistent://acme/orders/new", TOPIC),
        "topic": (TOPIC, "p on connection 1/1"),
        "producer": ("p@persistent://acme/orders/new", "p on connection 1/1"),
        "role": ("app", TOPIC),
        "address": ("192.0.2.7", TOPIC),
    }


def test_a_consumer_has_its_subscription_and_no_producer():
    names = scopes(direction="dispatch", subscription="s", producer_name="")
    assert names["subscription"] == (f"s@{TOPIC}", "s on connection 1/1")
    assert "producer" not in names
    assert "role" not in names


def test_a_topic_without_partitions_is_within_its_own_total():
    """As the limiter has it: `publish_total` of a topic holds for it, whether it has partitions or not."""
    topic = "persistent://acme/orders/new"
    assert scopes(topic=topic)["partitioned_topic"] == (topic, topic)


def test_suffix_that_is_no_partition_belongs_to_the_topic():
    topic = "persistent://acme/orders/new-partition-01"
    assert scopes(topic=topic)["partitioned_topic"] == (topic, topic)


def test_the_resource_group_is_shared_by_namespaces():
    assert scopes(resource_group="gold")["resource_group"] == ("gold", "acme/orders")
    assert "resource_group" not in scopes()


def test_a_topic_of_pulsars_own_is_under_its_own_level_only():
    log = PlantedLog(topic="persistent://acme/orders/__change_events-partition-2")
    log.interval(1)
    whole = "persistent://acme/orders/__change_events"
    assert rows_of(lines_of([log], exempt=True)) == {"exempt": (whole, "p on connection 1/1")}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"client_address": "[2001:db8::7]:41000", "client_network": "2001:db8::/64"}, "2001:db8::/64"),
        ({"client_address": "k12ab:0123456789abcdef"}, "k12ab:0123456789abcdef"),
        ({"client_address": "k12ab:0123456789012345"}, "k12ab:0123456789012345"),
        ({"client_address": "k12ab:0123456789012345", "client_network": "k12ab:fedc"}, "k12ab:fedc"),
    ],
)
def test_an_address_has_the_name_that_its_limit_has(fields, name):
    assert scopes(**fields)["address"] == (name, TOPIC)


def test_only_the_requested_levels_are_returned():
    log = PlantedLog()
    log.interval(1)
    tables = scoped(lines_of([log]), {"tenant", "role", "topic"})
    assert {level for level, named in tables if len(named)} == {"tenant", "topic"}


@pytest.mark.spark
def test_a_frame_has_the_scopes_that_columns_have(spark):
    log = PlantedLog(topic=TOPIC)
    log.interval(1, client_role="app", client_address="192.0.2.7:41000")
    log.interval(1, direction="dispatch", subscription="s", producer_name="", resource_group="gold")
    log.interval(1, client_address="k12ab:0123456789012345", client_network="")
    log.interval(1, topic="persistent://acme/orders/__change_events-partition-2", exempt=True)
    columns = ("seq", "level", "name", "member")
    rows = rates.scoped(frame(spark, [log], "interval")).select(*columns).collect()
    of_columns = [
        (seq, level, name, member)
        for level, named in scoped(lines_of([log]))
        for seq, name, member in zip(*(named[name].to_pylist() for name in ("seq", "name", "member")), strict=True)
    ]
    assert sorted(map(tuple, rows)) == sorted(of_columns)


def test_a_limited_role_is_proved_or_claimed_by_its_clients():
    log = PlantedLog()
    roles = [("proved", True), ("claimed", False), ("both", True), ("both", False), ("unlimited", True), ("", False)]
    for role, is_proved in roles:
        log.interval(1, client_role=role, role_is_proved=is_proved)
    limited = {("proxy-1", "publish", role) for role in ("proved", "claimed", "both", "idle")}
    facts = role_facts(summed_of(ROLES, log), limited)
    assert {(row.name, row.is_proved, row.is_claimed) for row in facts} == {
        ("proved", True, False),
        ("claimed", False, True),
        ("both", True, True),
    }
    assert {(row.proxy_id, row.direction) for row in facts} == {("proxy-1", "publish")}
