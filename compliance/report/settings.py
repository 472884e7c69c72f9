"""Settings in words: the texts of changes, which the log has as operators wrote them, most often as JSON."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from compliance.report.subjects import quantity, size

SUBJECTS = {
    "publish": "publish limit",
    "dispatch": "dispatch limit",
    "subscribe": "limit of subscribing",
    "group": "resource group",
    "attachment": "resource group",
    "dynamic": "broker setting",
    "block": "block",
    "file": "configuration file",
}
"""What a change is about, by `what` of its line."""
SCOPES = {
    "topic_of_namespace": "each topic of namespace",
    "subscription_of_namespace": "each subscription of namespace",
    "subscription_of_topic": "each subscription of topic",
}
"""The level of a setting, where its key says less than words."""
_MESSAGES = re.compile(r"(?i)(?:(\w*?)(?:throttlingrate|rate)inmsgs?|messages)$")
_BYTES = re.compile(r"(?i)(?:(\w*?)(?:throttlingrate|rate)inbytes?|bytes)$")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
_WRAPPING = frozenset(("form", "body"))


def subject(target: str, name: str) -> str:
    """Return what a change is about: publish limit of topic t.

    Args:
        target: As `ChangeFacts`: `publish of topic`, `block`; or of a limiter's line `publish topic`.
        name: Of the topic, namespace …; may be empty.
    """
    kind, _, scope = target.replace(" of ", " ", 1).partition(" ")
    of = SCOPES.get(scope, scope.replace("_", " "))
    named = " ".join(part for part in (of, name) if part)
    first = SUBJECTS.get(kind, kind)
    return f"{first} of {named}" if named else first


def in_words(text: str) -> str:
    """Return the value of a setting in words; a text that is no JSON as it is, one that is cut off as such."""
    if not text.startswith(("{", "[")):
        return text.strip('"')
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return "settings too long for this list"
    return ", ".join(_parts(value)) or "no limit"


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        inner = value["body"] if value.keys() == _WRAPPING else value
        if inner is not value:
            yield from _parts(inner)
            return
        for key, own in value.items():
            if isinstance(own, Mapping | list):
                yield from (f"{key} {part}" for part in _parts(own))
            else:
                yield from _rate(key, own)
    elif isinstance(value, list):
        for own in value:
            yield from _parts(own)
    elif value is not None:
        yield str(value)


def _rate(key: str, value: Any) -> Iterator[str]:
    for pattern, unit in ((_MESSAGES, "messages"), (_BYTES, "bytes")):
        if match := pattern.match(key):
            kind = f" {match[1]}" if match[1] in ("publish", "dispatch") and not key.lower().count("throttling") else ""
            if isinstance(value, str):
                yield value if unit in value else value.replace("/", f" {unit}/", 1)
            elif value is not None and value > 0:
                yield f"{size(value) if unit == 'bytes' else f'{quantity(value)} {unit}'}/s{kind}"
            return
    is_default = (key == "ratePeriodInSecond" and value == 1) or value is False or value is None or value == -1
    if not is_default:
        yield _spaced(key) if value is True else f"{_spaced(key)} {value}"


def _spaced(key: str) -> str:
    return _WORDS.sub(" ", key).lower()
