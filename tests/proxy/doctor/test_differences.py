"""What differs between two views, and what is only called differently."""

from dataclasses import replace

from proxy.stream_comparison import SeenStream, alike, differences

A, B = "persistent://t/n/a", "persistent://t/n/b"
AT_BROKER = SeenStream("publish", A, "", "p", "10.0.0.7:1", 1)
HERE = replace(AT_BROKER, connection="3")
CONSUMER = SeenStream("dispatch", A, "sub", "c", "10.0.0.7:1")
CONSUMER_HERE = replace(CONSUMER, connection="3")


def test_the_same_under_other_names_of_connections_is_no_difference() -> None:
    assert differences([AT_BROKER, CONSUMER], [CONSUMER_HERE, HERE]) == []


def test_another_topic_is_told_of_both_sides() -> None:
    assert differences([AT_BROKER], [replace(HERE, topic=B)]) == [
        f"only Sluice has producer 'p' on {B} (connection 3, id 1)",
        f"only the broker has producer 'p' on {A} (connection 10.0.0.7:1, id 1)",
    ]


def test_another_subscription_is_told() -> None:
    assert differences([CONSUMER], [replace(CONSUMER_HERE, subscription="other")]) == [
        f"only Sluice has consumer 'c' of subscription 'other' on {A} (connection 3)",
        f"only the broker has consumer 'c' of subscription 'sub' on {A} (connection 10.0.0.7:1)",
    ]


def test_consumers_of_one_name_are_counted() -> None:
    two = [CONSUMER, replace(CONSUMER, connection="10.0.0.7:2")]
    assert differences(two, [CONSUMER_HERE, replace(CONSUMER_HERE, connection="4")]) == []
    assert (alike(two), alike([CONSUMER, AT_BROKER])) == (2, 0)
    assert differences(two, [CONSUMER_HERE]) == [f"only the broker has 1 more of {CONSUMER}"]


def test_another_id_is_told() -> None:
    assert differences([AT_BROKER], [replace(HERE, number=2)]) == [
        f"another id: the broker has {AT_BROKER}, Sluice {replace(HERE, number=2)}"
    ]


def test_one_connection_of_the_broker_that_is_two_here_is_told() -> None:
    (line,) = differences([AT_BROKER, CONSUMER], [HERE, replace(CONSUMER_HERE, connection="4")])
    assert line.startswith("another connection: the broker has both on connection 10.0.0.7:1, Sluice has ")


def test_two_connections_of_the_broker_that_are_one_here_are_told() -> None:
    (line,) = differences([AT_BROKER, replace(CONSUMER, connection="10.0.0.7:2")], [HERE, CONSUMER_HERE])
    assert line.startswith("another connection: Sluice has both on connection 3, the broker has ")


def test_a_name_stays_in_its_line() -> None:
    (line,) = differences([], [replace(HERE, name="a\nb")])
    assert "\n" not in line
