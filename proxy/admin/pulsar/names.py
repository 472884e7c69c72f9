"""Names in the paths of Pulsar's admin REST.

Source: org.apache.pulsar.common.naming.NamedEntity, NamespaceName, TopicName
"""

import re

from aiohttp import web

from protocol.topic_name import TopicName, parse_topic
from proxy.admin.pulsar.answers import RefusedError

_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_LONGEST = 1024
"""Characters of a topic's or subscription's name."""


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
    if len(local) > _LONGEST or not local.isprintable():
        raise RefusedError(412, f"Topic name is not valid: more than {_LONGEST} characters, or not in one line")
    topic = parse_topic(f"{request.match_info['domain']}://{namespace}/{local}")
    if topic.partition >= 0:
        raise RefusedError(412, f"set it for {topic.partitioned}: policies of a topic are those of each partition")
    return topic


def subscription_in(request: web.Request) -> str:
    """A subscription.

    Raises:
        RefusedError: If it is none.
    """
    name = request.match_info["subscription"]
    if len(name) > _LONGEST or not name.isprintable():
        raise RefusedError(412, f"Subscription name is not valid: more than {_LONGEST} characters, or not in one line")
    return name


def group_in(request: web.Request) -> str:
    """A resource group.

    Raises:
        RefusedError: If Pulsar does not take such names.
    """
    name = request.match_info["group"]
    if not _ENTITY.fullmatch(name) or len(name) > _LONGEST:
        raise RefusedError(412, "ResourceGroup name is not valid")
    return name
