"""Changes of settings: the limits that each one concerns, and whether the lines of a limit show it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from limiter import levels as limiting

_ORIGINS = ("file", "rest", "dynamic", "global")
"""Origins of values, as limits' lines name them after the setting."""
_DYNAMIC = {
    "brokerPublisherThrottlingMax": ("publish", "proxy"),
    "maxPublishRatePerTopic": ("publish", "topic_of_broker"),
    "dispatchThrottlingRateIn": ("dispatch", "proxy"),
    "dispatchThrottlingRatePerTopic": ("dispatch", "topic_of_broker"),
    "dispatchThrottlingRatePerSubscription": ("dispatch", "subscription_of_broker"),
}
"""Direction and setting of each key of the broker's dynamic configuration, by the key's beginning."""
_PERIOD = re.compile(r'"[a-zA-Z]*[pP]eriod[a-zA-Z]*"\s*:\s*"?\d+')
_RATE = re.compile(r"(?<![\w.-])[1-9]\d*")
_MOST_TEXT = 200
_TOPIC = r"(?:(?:non-)?persistent://)"
_OF_TENANT = re.compile(rf"{_TOPIC}?([^/@*]+)(?:/[^@]*)?")
"""The name of a tenant, a namespace or a topic."""
_NAMESPACE = re.compile(rf"{_TOPIC}([^/]+/[^/]+)/")
_TWO_PARTS = re.compile(rf"(.*)@({_TOPIC}.*|[^@]*)")
"""A limiter's name of two parts; a topic as the second one may have an @."""
_PARTITION = re.compile(r"-partition-(0|[1-9]\d{0,9})$")
_IN_A_TENANT = frozenset(
    record.word
    for level in limiting.LEVELS
    for record in level.settings
    if record.named in ((limiting.TENANT,), (limiting.NAMESPACE,), (limiting.PARTITIONED_TOPIC,))
)


class ChangeScope(NamedTuple):
    """The limits that a change concerns; empty: several, or not known."""

    direction: str = ""
    level: str = ""
    tenant: str = ""

    @classmethod
    def of_limiter(cls, direction: str, level: str, name: str) -> "ChangeScope":
        """Return the scope of one limiter."""
        return cls(direction, level, _tenant_in(level, name))

    def concerns(self, limiter: "ChangeScope") -> bool:
        """Return whether the change may concern a limiter with that scope."""
        return all(not own or not other or own == other for own, other in zip(self, limiter, strict=True))


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change of the value that one setting gives to limits of one direction.

    Args:
        seq: The number of its line.
        at_us: Its time, microseconds on the axis.
        direction: The direction of the limits.
        setting: The setting.
        name: Its name.
        origin: The origin of the value, as limits' lines name it.
        before: Its rates before; empty for none.
        after: Its rates from now on.
        text: The change in words.
    """

    seq: int
    at_us: int
    direction: str
    setting: str
    name: str
    origin: str
    before: frozenset[str]
    after: frozenset[str]
    text: str

    def is_in_vain(self, source: str, messages: float | None, size: float | None) -> bool:
        """Return whether a limit that goes on with this source and these rates has not taken the change.

        Its value is the setting's, or one that the setting had and has no more, or one that the setting hides.
        """
        if self.origin == "file":  # its text may differ in more than a line of the limit has
            return False
        if self._is_source(source) and (self.before or self.after):
            return True
        level = limiting.LEVEL_OF_SETTING[self.setting]
        place = next(at for at, record in enumerate(level.settings) if record.word == self.setting)
        if self.after and source.partition(" plan ")[0] in _hidden(level, place, self._own):
            return True
        rate = size if messages is None else messages
        number = "" if rate is None else str(int(rate))
        return number in self.before and number not in self.after and not source.endswith(" tenant")

    def removes(self, source: str) -> bool:
        """Return whether a limit with this source has no value any more."""
        return not self.after and self._is_source(source)

    def _is_source(self, source: str) -> bool:
        return source.partition(" plan ")[0] == f"{self._own} {self.origin}"

    @property
    def _own(self) -> str:
        """The setting as limits' lines name it."""
        record = limiting.Setting(self.setting).record
        return f"each {record.source}" if record.is_each(self.name) else record.source


def _hidden(level: limiting.Level, place: int, own: str) -> Iterator[str]:
    """Yield the sources that a value of a level's setting hides: the file, all names together, and wider settings."""
    yield f"{own} file"
    for form in ("each", "pattern"):
        yield from (f"{form} {own} {origin}" for origin in ("file", "rest"))
    for record in level.settings[place + 1 :]:
        yield from (f"{word} {origin}" for word in {record.source, record.pattern_source} for origin in _ORIGINS)


class Changed(NamedTuple):
    """A line of a change.

    Args:
        seq: Its number.
        at_us: Its time, microseconds on the axis; until then the earlier value may have held.
        scope: The limits that it concerns.
        values: The values that it changes, as far as their limiters' names follow from it.
    """

    seq: int
    at_us: int
    scope: ChangeScope = ChangeScope()
    values: tuple[SettingChange, ...] = ()


def changed(
    seq: int, at_us: int, *, what: str, setting: str, name: str, before: str | None, after: str | None
) -> Changed | None:
    """Return the change that a line has; None if it concerns no limit.

    Args:
        seq: The number of the line.
        at_us: Its time on the axis.
        what: What was changed: the limits of a direction, a block, a file ...
        setting: The setting; empty where the value belongs to none.
        name: The name that the value is for.
        before: The text of the value before; None for none.
        after: Its text from now on; None for none.
    """
    if what in ("block", "subscribe"):
        return None
    values: tuple[SettingChange, ...] = ()
    if before != after:
        of_line = _values(what, setting, name, before or "", after or "")
        values = tuple(SettingChange(seq, at_us, *value) for value in of_line)
    if what not in ("publish", "dispatch"):
        return Changed(
            seq, at_us, ChangeScope(level="resource_group" if what in ("group", "attachment") else ""), values
        )
    own = setting.removeprefix("global_").removeprefix("tenants_")
    level = limiting.LEVEL_OF_SETTING.get(own)
    return Changed(seq, at_us, ChangeScope(what, level.word if level else "", _tenant_in(own, name)), values)


def _values(subject: str, setting: str, name: str, before: str, after: str) -> Iterator[tuple[Any, ...]]:
    """Yield the further fields of each `SettingChange` that a line has."""
    texts = before, after
    words = "it was changed from " + " to ".join(text[:_MOST_TEXT] or "nothing" for text in texts)
    if subject == "group":
        for direction in ("publish", "dispatch"):
            # One text has the rates of both directions.
            of_direction = re.compile(rf'"{direction}Rate[^"]*"\s*:\s*"?(-?\d+)')
            rates = (_rates(" ".join(of_direction.findall(text))) for text in texts)
            yield (direction, "resource_group", name, "rest", *rates, words)
    elif subject == "dynamic":
        for key, (direction, own) in _DYNAMIC.items():
            if name.startswith(key):
                yield (direction, own, "", "dynamic", *map(_rates, texts), words)
    elif subject == "file" and not any("…" in text for text in texts):
        values = [_values_of_file(text) for text in texts]
        for target in values[0] | values[1]:
            yield (*target, "file", *(_rates(of_text.get(target, "")) for of_text in values), words)
    elif setting in limiting.LEVEL_OF_SETTING:
        yield (subject, setting, name, "rest", *map(_rates, texts), words)


def _values_of_file(text: str) -> dict[tuple[str, str, str], str]:
    """Return the values among those in which two files differ, by direction, setting and name."""
    values = {}
    for each in text.split("; "):
        target, _, value = each.rpartition(": ")
        direction, _, named = target.partition(" ")
        setting, _, name = named.partition(" ")
        if setting in limiting.LEVEL_OF_SETTING:
            values[direction, setting, name] = value
    return values


def _rates(text: str) -> frozenset[str]:
    return frozenset(_RATE.findall(_PERIOD.sub("", text)))


def _tenant_in(setting: str, name: str) -> str:
    """Return the tenant that a name of a setting, or of a level's limiter, is in; empty for several or none."""
    tenant = _OF_TENANT.fullmatch(name) if setting in _IN_A_TENANT else None
    return tenant[1] if tenant else ""


def own_values(changes: Iterable[Changed], direction: str, level: str, name: str) -> list[SettingChange]:
    """Return the values that a limiter may have been given by changes that concern it.

    Settings whose names are patterns, as networks, are left out: several may be for one limiter, whose line does not
    tell which holds.
    """
    record = limiting.LEVEL_OF_WORD.get(level)
    if record is None or record.is_of_system:
        return []
    two = _TWO_PARTS.fullmatch(name)
    pieces = two.groups() if two and len(record.limited) > 1 else (name,)
    parts = {part.by or part: (part, piece) for part, piece in zip(record.limited, pieces, strict=False)}
    own: dict[str, tuple[limiting.SettingRecord, str]] = {
        setting.word: (setting, "@".join(_name_of(part, parts, name) for part in setting.named))
        for setting in record.settings
        if record.is_by_match or not setting.has_patterns
    }
    values = (value for change in changes for value in change.values if value.direction == direction)
    return [
        value
        for value in values
        if value.setting in own and (value.name == own[value.setting][1] or own[value.setting][0].is_each(value.name))
    ]


def _name_of(part: limiting.Part, parts: dict[limiting.Part, tuple[limiting.Part, str]], name: str) -> str:
    """Return a part of the streams of a limiter: it is in the limiter's name, or follows from the topic there."""
    if part in parts:
        limited, piece = parts[part]
        return piece if limited is part else _PARTITION.sub("", piece)
    namespace = _NAMESPACE.search(name)
    own = namespace[1] if namespace else name
    return own.partition("/")[0] if part is limiting.TENANT else own
