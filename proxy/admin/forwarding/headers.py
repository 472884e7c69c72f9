"""Which headers pass: by name, so that nothing passes that means something else on the other side.

Neither credentials nor what belongs to one connection passes; nor X-Original-Principal, by which a broker lets proxies
speak for others, nor Location and Access-Control, by which an answer would lead clients and browsers around Sluice.
"""

from collections.abc import Mapping

from multidict import CIMultiDict

VIA = "Via"

_ASKING = ("Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent")
_ANSWERING = frozenset(
    {"content-type", "content-encoding", "content-disposition", "retry-after", "cache-control", "vary"}
)
_OF_MESSAGES = "x-pulsar-"
"""Peeked messages have their metadata in these."""


def asking(came: Mapping[str, str]) -> CIMultiDict[str]:
    """Those of a request that the broker gets."""
    return CIMultiDict((name, came[name]) for name in _ASKING if name in came)


def answering(came: Mapping[str, str]) -> CIMultiDict[str]:
    """Those of the broker's answer that the caller gets."""
    return CIMultiDict((name, value) for name, value in came.items() if _passes(name.lower()))


def _passes(name: str) -> bool:
    return name in _ANSWERING or name.startswith(_OF_MESSAGES)
