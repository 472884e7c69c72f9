"""Names in the paths of Pulsar's admin REST.

Source: org.apache.pulsar.common.naming.NamedEntity, NamespaceName, TopicName
"""

from aiohttp import web

from protocol.topic_name import TopicName, is_entity, parse_topic
from proxy.admin.pulsar.answers import RequestRefusedError
from proxy.admin.questions import Text
from proxy.blocking.rules import MOST_NAME
from proxy.config.values import LONGEST_PART
from proxy.policies.layers import DYNAMIC_KEYS

_LETTERS = "[-=:.A-Za-z0-9_]+"
_NAMES = (
    Text(name="domain", meaning="persistent or non-persistent", words=("persistent", "non-persistent")),
    Text(name="tenant", meaning="a tenant", longest=LONGEST_PART, pattern=_LETTERS),
    Text(name="namespace", meaning="a namespace of the tenant", longest=LONGEST_PART, pattern=_LETTERS),
    Text(name="topic", meaning="a topic of the namespace, without partition", longest=LONGEST_PART),
    Text(name="subscription", meaning="a subscription of the topic", longest=MOST_NAME),
    Text(name="group", meaning="a resource group", longest=MOST_NAME),
    Text(name="name", meaning="a key of the dynamic configuration", words=tuple(sorted(DYNAMIC_KEYS))),
    Text(name="value", meaning="a whole number; 0 and below mean no limit", longest=20, pattern="-?[0-9]{1,19}"),
)
PATH_NAMES = {name.name: name for name in _NAMES}
"""What stands in the paths."""
_OF_A_PARTITION = "Not allowed to set/get topic policy for a partition"


def namespace_in(request: web.Request) -> str:
    """`tenant/namespace`.

    Raises:
        RequestRefusedError: If Pulsar does not take such names.
    """
    parts = request.match_info["tenant"], request.match_info["namespace"]
    if not all(len(part) <= LONGEST_PART and is_entity(part) for part in parts):
        raise RequestRefusedError(412, "Namespace name is not valid")
    return "/".join(parts)


def topic_in(request: web.Request) -> TopicName:
    """A whole topic.

    Raises:
        RequestRefusedError: If it is none, or one partition.
    """
    namespace, local = namespace_in(request), request.match_info["topic"]
    _check_line("Topic", local)
    topic = parse_topic(f"{request.match_info['domain']}://{namespace}/{local}")
    if topic.partition >= 0:
        raise RequestRefusedError(412, f"{_OF_A_PARTITION}: set it for {topic.partitioned}")
    return topic


def subscription_in(request: web.Request) -> str:
    """A subscription.

    Raises:
        RequestRefusedError: If it is none.
    """
    return _check_line("Subscription", request.match_info["subscription"], MOST_NAME)


def group_in(request: web.Request) -> str:
    """A resource group; of its name a broker checks nothing at all.

    Raises:
        RequestRefusedError: If it is none.
    """
    return _check_line("ResourceGroup", request.match_info["group"], MOST_NAME)


def _check_line(what: str, name: str, most: int = LONGEST_PART) -> str:
    """Names of subscriptions and groups are as long as the configuration takes them, so that all can be exported."""
    if len(name) > most or not name.isprintable():
        raise RequestRefusedError(412, f"{what} name is not valid: more than {most} characters, or not in one line")
    return name
