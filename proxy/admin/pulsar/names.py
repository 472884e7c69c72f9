"""Names in the paths of Pulsar's admin REST.

Source: org.apache.pulsar.common.naming.NamedEntity, NamespaceName, TopicName
"""

import re

from aiohttp import web

from protocol.topic_name import TopicName, parse_topic
from proxy.admin.pulsar.answers import RefusedError
from proxy.blocking.rules import MOST_NAME

_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_LONGEST = 1024
"""Characters of a name."""
_OF_A_PARTITION = "Not allowed to set/get topic policy for a partition"


def namespace_in(request: web.Request) -> str:
    """`tenant/namespace`.

    Raises:
        RefusedError: If Pulsar does not take such names.
    """
    parts = request.match_info["tenant"], request.match_info["namespace"]
    if not all(_ENTITY.fullmatch(part) and len(part) <= _LONGEST for part in parts):
        raise RefusedError(412, "Namespace name is not valid")
    return "/".join(parts)


def topic_in(request: web.Request) -> TopicName:
    """A whole topic.

    Raises:
        RefusedError: If it is none, or one partition.
    """
    namespace, local = namespace_in(request), request.match_info["topic"]
    _check_line("Topic", local)
    topic = parse_topic(f"{request.match_info['domain']}://{namespace}/{local}")
    if topic.partition >= 0:
        raise RefusedError(412, f"{_OF_A_PARTITION}: set it for {topic.partitioned}")
    return topic


def subscription_in(request: web.Request) -> str:
    """A subscription.

    Raises:
        RefusedError: If it is none.
    """
    return _check_line("Subscription", request.match_info["subscription"], MOST_NAME)


def group_in(request: web.Request) -> str:
    """A resource group; of its name a broker checks nothing at all.

    Raises:
        RefusedError: If it is none.
    """
    return _check_line("ResourceGroup", request.match_info["group"], MOST_NAME)


def _check_line(what: str, name: str, most: int = _LONGEST) -> str:
    """Names of subscriptions and groups are as long as the configuration takes them, so that all can be exported."""
    if len(name) > most or not name.isprintable():
        raise RefusedError(412, f"{what} name is not valid: more than {most} characters, or not in one line")
    return name
