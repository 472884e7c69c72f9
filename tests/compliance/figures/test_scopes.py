import pytest
from pyspark.sql import functions as F

from compliance.figures.rates import scoped
from compliance.figures.traffic import ROLES, role_facts
from tests.compliance.arrow import summed_of
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark
TOPIC = "persistent://acme/orders/new-partition-2"


def scopes(spark, **more):
    log = PlantedLog(topic=TOPIC)
    log.interval(1, **more)
    rows = scoped(frame(spark, [log], "interval")).collect()
    return {row.level: (row.name, row.member) for row in rows}


def test_a_producer_has_its_name_at_every_level(spark):
    assert scopes(spark, client_role="app", client_address="192.0.2.7:41000") == {
        "proxy": ("", "acme"),
        "tenant": ("acme", "acme/orders"),
        "namespace": ("acme/orders", TOPIC),
        "partitioned_topic": ("persistent://acme/orders/new", TOPIC),
        "topic": (TOPIC, "p on connection 1/1"),
        "producer": ("p@persistent://acme/orders/new", "p on connection 1/1"),
        "role": ("app", TOPIC),
        "address": ("192.0.2.7", TOPIC),
    }


def test_a_consumer_has_its_subscription_and_no_producer(spark):
    names = scopes(spark, direction="dispatch", subscription="s", producer_name="")
    assert names["subscription"] == (f"s@{TOPIC}", "s on connection 1/1")
    assert "producer" not in names
    assert "role" not in names


def test_a_topic_without_partitions_is_within_its_own_total(spark):
    """As the limiter has it: `publish_total` of a topic holds for it, whether it has partitions or not."""
    topic = "persistent://acme/orders/new"
    assert scopes(spark, topic=topic)["partitioned_topic"] == (topic, topic)


def test_a_suffix_that_brokers_do_not_read_as_a_partition_belongs_to_the_name(spark):
    topic = "persistent://acme/orders/new-partition-01"
    assert scopes(spark, topic=topic)["partitioned_topic"] == (topic, topic)


def test_the_resource_group_is_shared_by_namespaces(spark):
    assert scopes(spark, resource_group="gold")["resource_group"] == ("gold", "acme/orders")
    assert "resource_group" not in scopes(spark)


def test_a_topic_of_pulsars_own_is_under_its_own_level_only(spark):
    log = PlantedLog(topic="persistent://acme/orders/__change_events-partition-2")
    log.interval(1)
    lines = frame(spark, [log], "interval").withColumn("exempt", F.lit(True))
    (row,) = scoped(lines).collect()
    whole = "persistent://acme/orders/__change_events"
    assert (row.level, row.name, row.member) == ("exempt", whole, "p on connection 1/1")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"client_address": "[2001:db8::7]:41000", "client_network": "2001:db8::/64"}, "2001:db8::/64"),
        ({"client_address": "k12ab:0123456789abcdef"}, "k12ab:0123456789abcdef"),
        ({"client_address": "k12ab:0123456789012345"}, "k12ab:0123456789012345"),
        ({"client_address": "k12ab:0123456789012345", "client_network": "k12ab:fedc"}, "k12ab:fedc"),
    ],
)
def test_an_address_has_the_name_that_its_limit_has(spark, said, name):
    assert scopes(spark, **said)["address"] == (name, TOPIC)


def test_only_the_requested_levels_are_returned(spark):
    log = PlantedLog()
    log.interval(1)
    levels = {row.level for row in scoped(frame(spark, [log], "interval"), {"tenant", "role", "topic"}).collect()}
    assert levels == {"tenant", "topic"}


def test_a_limited_role_is_proved_or_claimed_by_its_clients():
    log = PlantedLog()
    said = [("proved", True), ("claimed", False), ("both", True), ("both", False), ("unlimited", True), ("", False)]
    for role, is_proved in said:
        log.interval(1, client_role=role, role_is_proved=is_proved)
    limited = {("proxy-1", "publish", role) for role in ("proved", "claimed", "both", "idle")}
    found = role_facts(summed_of(ROLES, log), limited)
    assert {(row.name, row.is_proved, row.is_claimed) for row in found} == {
        ("proved", True, False),
        ("claimed", False, True),
        ("both", True, True),
    }
    assert {(row.proxy_id, row.direction) for row in found} == {("proxy-1", "publish")}
