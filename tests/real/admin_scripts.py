"""Calls of pulsar-admin, in an order in which each has something to show, that leave nothing set behind."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.real.pulsar_rest import TENANT, topic_name

NAMESPACE = f"{TENANT}/pulsar-admin"
TOPIC, IN_PARTS = topic_name("pulsar-admin", "t"), topic_name("pulsar-admin", "parts")
SUBSCRIPTION = "s1"
ODD_NAMES = ("a b", "a+b", "a%b", "a%20b", "a%2Bb", "\u00e9", "a;b", "a?b#c", "a&b=c", "a~!*'(),:@$b")
"""Of topics and subscriptions; each could be taken for another one."""
NO_TOPIC = topic_name("pulsar-admin", "not-there")

RATES = {
    "publish-rate": ("-m 100 -b -1", "-m 5", "--msg-publish-rate 0 --byte-publish-rate 2048", ""),
    "dispatch-rate": ("-md 100 -bd -1", "-md 100 -bd 2048 -dt 7 -rp", "-md 5 -dt 0", ""),
    "subscription-dispatch-rate": (
        "-md 100 -bd -1",
        "-md 100 -bd 2048 -dt 7 -rp",
        "-bd 9 --dispatch-rate-period 3",
        "",
    ),
    "subscribe-rate": ("-sr 5 -st 10", "-sr 5", "--subscribe-rate -1 --subscribe-rate-period 60", ""),
}
"""By their names in pulsar-admin, and what they are set to; what is not given is -1, a period 1 s or 30 s."""

DYNAMIC_KEYS = (
    "brokerPublisherThrottlingMaxMessageRate",
    "brokerPublisherThrottlingMaxByteRate",
    "maxPublishRatePerTopicInMessages",
    "maxPublishRatePerTopicInBytes",
    "dispatchThrottlingRateInMsg",
    "dispatchThrottlingRateInByte",
    "dispatchThrottlingRatePerTopicInMsg",
    "dispatchThrottlingRatePerTopicInByte",
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerSubscriptionInByte",
    "subscribeThrottlingRatePerConsumer",
    "subscribeRatePeriodPerConsumerInSecond",
)


def of_namespace(kind: str) -> Iterator[str]:
    """Set, get and remove a rate of a namespace."""
    get, remove = f"namespaces get-{kind} {NAMESPACE}", f"namespaces remove-{kind} {NAMESPACE}"
    yield from (get, remove)
    for flags in RATES[kind]:
        yield from (f"namespaces set-{kind} {NAMESPACE} {flags}", get)
    yield from (remove, get)


def of_topic(group: str, kind: str) -> Iterator[str]:
    """The same of a topic; what applies there, too (of publish rates pulsar-admin cannot ask that)."""
    get, remove = f"{group} get-{kind} {TOPIC}", f"{group} remove-{kind} {TOPIC}"
    yield from (get, f"{get} -ap", remove)
    for flags in RATES[kind]:
        yield from (f"{group} set-{kind} {TOPIC} {flags}", get, f"{get} --applied")
    yield from (remove, get, f"{get} -ap")


def of_topic_globally(kind: str) -> Iterator[str]:
    """A topic's global rate is another one than its own."""
    get, first, second = f"topicPolicies get-{kind} {TOPIC}", *RATES[kind][:2]
    yield from (f"topicPolicies set-{kind} {TOPIC} {first} -g", get, f"{get} -g")
    yield from (f"topicPolicies set-{kind} {TOPIC} {second}", get, f"{get} --global", f"{get} -ap")
    yield from (f"topicPolicies remove-{kind} {TOPIC} -g", get, f"{get} -g", f"topicPolicies remove-{kind} {TOPIC}")


def of_subscription(subscription: str) -> Iterator[str]:
    """One subscription's dispatch rate on one topic, beside that of each of the topic."""
    commands = "topicPolicies {}-subscription-dispatch-rate " + TOPIC
    get_each, get = commands.format("get"), f"{commands.format('get')} -s {subscription}"
    own, each = f"{commands.format('set')} -s {subscription} -md 9 -bd 10 -dt 2", f"{commands.format('set')} -md 4"
    yield from (get, f"{get} -ap", own, get, get_each, f"{get} -ap", each, get, get_each, f"{get} --applied")
    yield from (f"{commands.format('remove')} -s {subscription}", get, f"{get} -ap", f"{own} -g", get, f"{get} -g")
    yield from (f"{commands.format('remove')} -s {subscription} -g", f"{get} -g", commands.format("remove"), get_each)


def of_odd_names() -> Iterator[str]:
    """Rates of topics and subscriptions with odd names, each of them another number."""
    topics = [shlex.quote(topic_name("pulsar-admin", name)) for name in ODD_NAMES]
    places = [f"{{}}-publish-rate {topic}" for topic in topics]
    places += [f"{{}}-subscription-dispatch-rate {TOPIC} -s {shlex.quote(name)}" for name in ODD_NAMES]
    for number, place in enumerate(places, start=100):
        flag = "-m" if "publish" in place else "-md"
        yield f"topicPolicies {place.format('set')} {flag} {number}"
    for place in places:
        yield f"topicPolicies {place.format('get')}"
        yield f"topicPolicies {place.format('remove')}"


def precedence(kind: str, key: str, flags: str) -> Iterator[str]:
    """What applies to a topic: the broker's, over it the namespace's, over it its own, and back again."""
    applied, of_topic = f"topicPolicies get-{kind} {TOPIC} -ap", f"topicPolicies {{}}-{kind} {TOPIC}"
    yield from (f"brokers update-dynamic-config -c {key} -v 90000", applied)
    yield from (f"namespaces set-{kind} {NAMESPACE} {flags} 80000", applied)
    yield from (f"{of_topic.format('set')} {flags} 70000", applied, of_topic.format("remove"), applied)
    yield from (f"namespaces remove-{kind} {NAMESPACE}", applied)
    yield from (f"brokers delete-dynamic-config -c {key}", applied)


def of_resource_groups() -> Iterator[str]:
    """Make, change, attach, detach and end groups."""
    gold, silver = (f"{TENANT}-{name}" for name in ("gold", "'silver too'"))
    attached = f"namespaces get-resource-group {NAMESPACE}"
    attach = f"namespaces set-resource-group {NAMESPACE} -rgn"
    yield from (f"resourcegroups get {gold}", f"resourcegroups update {gold} -mp 5", f"resourcegroups get {gold}")
    yield from (f"resourcegroups create {gold} -mp 10 -bp 20 -md 30 -bd 40", f"resourcegroups get {gold}")
    yield from (f"resourcegroups update {gold} --msg-publish-rate 11", f"resourcegroups get {gold}")
    yield from (f"resourcegroups create {gold} -bd 12", f"resourcegroups get {gold}")
    yield from (f"resourcegroups create {silver}", f"resourcegroups get {silver}", "resourcegroups list")
    yield from (attached, f"{attach} nobody-s", f"{attach} {gold}", attached, f"resourcegroups delete {gold}")
    yield from (f"{attach} {silver}", attached, f"resourcegroups delete {gold}", f"resourcegroups get {gold}")
    remove = f"namespaces remove-resource-group {NAMESPACE}"
    yield from (remove, attached, remove, f"resourcegroups delete {silver}", "resourcegroups list")


def of_dynamic_configuration() -> Iterator[str]:
    """Every key that means something here; so high that nothing is limited by it."""
    values = "brokers get-all-dynamic-config"
    for number, key in enumerate(DYNAMIC_KEYS, start=900_000):
        yield from (f"brokers update-dynamic-config -c {key} -v {number}", values)
    yield from (f"brokers update-dynamic-config --config {DYNAMIC_KEYS[0]} --value 950000", values)
    for kind in RATES:
        yield f"topicPolicies get-{kind} {TOPIC} -ap"
    for key in DYNAMIC_KEYS:
        yield f"brokers delete-dynamic-config -c {key}"
    yield from (values, f"brokers delete-dynamic-config -c {DYNAMIC_KEYS[0]}")


def of_mistakes() -> Iterator[str]:
    """What neither takes."""
    yield from (
        f"namespaces set-publish-rate {NAMESPACE} -m many",
        "namespaces get-publish-rate",
        "namespaces get-rate",
    )
    yield from (f"topicPolicies set-publish-rate non-{TOPIC} -m 5", "namespaces set-publish-rate nonsense -m 5")
    for key in ("zookeeperServers", "nonsense"):
        yield from (f"brokers update-dynamic-config -c {key} -v 5", f"brokers delete-dynamic-config -c {key}")


@dataclass(frozen=True)
class Difference:
    """Where Sluice answers otherwise than a broker, on purpose.

    Attributes:
        why: The reason.
        command: The call.
        broker: What is in the broker's answer: exit code, a blank, all that is printed.
        sluice: What is in Sluice's.
        before: Calls that set the scene; of what they answer nothing is said.
        after: Those that clear it away.
    """

    why: str
    command: str
    broker: str
    sluice: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_DISPATCH = f"topicPolicies {{}}-dispatch-rate {TOPIC}"
_GET_APPLIED = f"{_DISPATCH.format('get')} -ap"
_IN_MSG = '0 {{\n  "dispatchThrottlingRateInMsg" : {},'
_KEY, _ELSEWHERE = DYNAMIC_KEYS[6], "Sluice serves limits only: ask the broker's own admin address"
DIFFERENCES = (
    Difference(
        "Sluice does not know which namespaces exist, and may be told of their limits before they do",
        f"namespaces set-publish-rate {TENANT}/not-there -m 5",
        "1 WARN [/admin/v2/namespaces/sluice-test/not-there/publishRate] Failed to perform http post request: "
        'javax.ws.rs.NotFoundException: HTTP 404 {"reason":"Namespace does not exist"}',
        "0 ",
        after=(f"namespaces remove-publish-rate {TENANT}/not-there",),
    ),
    Difference(
        "nor which topics",
        f"topics set-publish-rate {NO_TOPIC} -m 5",
        f"{NO_TOPIC} not found",
        "0 ",
        after=(f"topics remove-publish-rate {NO_TOPIC}",),
    ),
    Difference(
        "of a partition Sluice says what to do instead",
        f"topicPolicies set-publish-rate {IN_PARTS}-partition-0 -m 5",
        'HTTP 412 {"reason":"Not allowed to set/get topic policy for a partition"}',
        f'HTTP 412 {{"reason":"Not allowed to set/get topic policy for a partition: set it for {IN_PARTS}"}}',
    ),
    Difference(
        "a group that is not there is nobody's error of the inside",
        "resourcegroups delete nobody-s",
        "HTTP 500 ",
        'HTTP 404 {"reason":"ResourceGroup does not exist"}',
    ),
    Difference(
        "a broker takes any text for a number, and goes on as before",
        f"brokers update-dynamic-config -c {_KEY} -v many",
        "0 ",
        f'HTTP 412 {{"reason":"{_KEY}: \'many\' is not a whole number of 32 bits',
        after=(f"brokers delete-dynamic-config -c {_KEY}",),
    ),
    Difference(
        "keys of the broker's that mean nothing here",
        "brokers update-dynamic-config -c brokerDeleteInactiveTopicsFrequencySeconds -v 60",
        "0 ",
        'HTTP 412 {"reason":"Can\'t update non-dynamic configuration"}',
        after=("brokers delete-dynamic-config -c brokerDeleteInactiveTopicsFrequencySeconds",),
    ),
    Difference(
        "replication does not go through Sluice",
        f"namespaces set-replicator-dispatch-rate {NAMESPACE} -md 5",
        "0 ",
        'HTTP 412 {"reason":"replication does not go through Sluice: set this rate at the broker',
        after=(f"namespaces remove-replicator-dispatch-rate {NAMESPACE}",),
    ),
    Difference("Sluice serves limits, and says so", f"namespaces get-retention {NAMESPACE}", "0 null", _ELSEWHERE),
    Difference("the same of methods", "brokers get-runtime-config", "0 ", _ELSEWHERE),
    Difference(
        "--applied is what is in force; a broker enforces global policies, but does not show them there",
        _GET_APPLIED,
        _IN_MSG.format(0),
        _IN_MSG.format(90000),
        before=(f"{_DISPATCH.format('set')} -md 90000 -g",),
        after=(f"{_DISPATCH.format('remove')} -g",),
    ),
    Difference(
        "nor does it show that a value that limits nothing leaves the namespace's in force",
        _GET_APPLIED,
        _IN_MSG.format(-1),
        _IN_MSG.format(90000),
        before=(f"namespaces set-dispatch-rate {NAMESPACE} -md 90000", _DISPATCH.format("set")),
        after=(_DISPATCH.format("remove"), f"namespaces remove-dispatch-rate {NAMESPACE}"),
    ),
    Difference(
        "--applied is what is in force, asked with --global, too",
        f"{_GET_APPLIED} -g",
        _IN_MSG.format(90000),
        _IN_MSG.format(80000),
        before=(f"{_DISPATCH.format('set')} -md 90000 -g", f"{_DISPATCH.format('set')} -md 80000"),
        after=(f"{_DISPATCH.format('remove')} -g", _DISPATCH.format("remove")),
    ),
    Difference(
        "no limit of one subscription is shown as it was written, as that of all of them is",
        f"topicPolicies get-subscription-dispatch-rate {TOPIC} -s {SUBSCRIPTION} -ap",
        _IN_MSG.format(0),
        _IN_MSG.format(-1),
        before=(f"topicPolicies set-subscription-dispatch-rate {TOPIC} -s {SUBSCRIPTION}",),
        after=(f"topicPolicies remove-subscription-dispatch-rate {TOPIC} -s {SUBSCRIPTION}",),
    ),
    Difference(
        "no limit of the broker's own configuration is 0",
        _GET_APPLIED,
        _IN_MSG.format(-1),
        _IN_MSG.format(0),
        before=(f"brokers update-dynamic-config -c {_KEY} -v -1",),
        after=(f"brokers delete-dynamic-config -c {_KEY}",),
    ),
    Difference(
        "a broker takes any number below 0 for no limit, and a slip of the pen, too",
        f"brokers update-dynamic-config -c {_KEY} -v -5",
        "0 ",
        f"{_KEY}: -5 is no rate: write 0 or -1 for no limit",
        after=(f"brokers delete-dynamic-config -c {_KEY}",),
    ),
    *(
        Difference(
            "the same of rates",
            f"{command} -5",
            "0 ",
            "-5 is no rate: write -1 for no limit",
            after=(after,),
        )
        for command, after in (
            (f"namespaces set-publish-rate {NAMESPACE} -m", f"namespaces remove-publish-rate {NAMESPACE}"),
            (f"topicPolicies set-publish-rate {TOPIC} -b", f"topicPolicies remove-publish-rate {TOPIC}"),
            (f"{_DISPATCH.format('set')} -md", _DISPATCH.format("remove")),
            (f"topicPolicies set-subscribe-rate {TOPIC} -sr", f"topicPolicies remove-subscribe-rate {TOPIC}"),
            (f"resourcegroups create {TENANT}-low -bd", f"resourcegroups delete {TENANT}-low"),
        )
    ),
)
