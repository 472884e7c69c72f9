"""The names that settings have values for: the forms of names, and the look-up of a stream's name among them.

Most names are those of streams themselves. Names of networks are patterns: `10.0.0.0/8` is for each address in it, and
the narrowest network with a value decides. Patterns with `*` are for several names, as of tenants; see
`PatternValues`. Another form of names is one more subclass of `NamedValues`, which a property of streams names
(`limiter.levels.Part`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import chain
from typing import Generic, Self, TypeVar

T = TypeVar("T")

EACH = "*"
"""The name of a setting that is for all names without a value of their own; see `SettingRecord.has_each`."""
IPV6_HOST = 64
"""Bits that distinguish IPv6 clients: a client has a whole /64."""
MOST_PARSED = 10_000
"""Parsed addresses in the cache: streams of one client have the same address."""


class NamedValues(Generic[T]):
    """Values by name, each for the streams of this very name.

    Attributes:
        by_name: The values.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, T] = {}

    @classmethod
    def parse(cls, text: str) -> str:
        """Return a name as it is kept.

        Raises:
            ValueError: If the text is no name of this form, with the remedy.
        """
        return text

    def put(self, name: str, value: T) -> None:
        """Set the value of a name."""
        self.by_name[name] = value

    def take_back(self, name: str) -> None:
        """Take the value of a name back, if it has one."""
        self.by_name.pop(name, None)

    def matches(self, own: str) -> Iterable[tuple[str, T]]:
        """Return the names that are for a stream's own name, and their values; the narrowest first."""
        value = self.by_name.get(own)
        return () if value is None else ((own, value),)

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)()
        other.by_name = dict(self.by_name)
        return other


MOST_FORMS = 16
"""Forms of the patterns of one setting: a look-up takes 1 µs for each, and a turn looks up those of 100 streams."""
PatternForm = tuple[tuple[bool, int, int], ...]
"""For each part of a pattern: whether it is a name without `*`; its characters beside `*`; those before `*`.

Of the patterns that match one name each has another form. The greatest form is the most specific one.
"""


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern; `EACH` alone is none."""
    return EACH in name and name != EACH


def form_of(pattern: str) -> PatternForm:
    """Return the form of a pattern.

    Raises:
        ValueError: If a part has more than one `*`.
    """
    parts = pattern.split("/")
    if any(part.count(EACH) > 1 for part in parts):
        raise ValueError("write one * at most in each part between slashes")
    return tuple([_part_form(part) for part in parts])


def fits(pattern: str, own: str) -> bool:
    """Return whether a pattern matches a stream's own name."""
    return _filled(form_of(pattern), own.split("/")) == pattern


def overlap(pattern: str, other: str) -> bool:
    """Return whether a stream's own name may match both of two names, which may be patterns or `EACH`."""
    parts, others = pattern.split("/"), other.split("/")
    return len(parts) == len(others) and all(map(_parts_overlap, parts, others))


def _parts_overlap(part: str, other: str) -> bool:
    (before, star, after), (before_other, star_other, after_other) = part.partition(EACH), other.partition(EACH)
    if not (star and star_other):
        return part == other or (fits(part, other) if star else bool(star_other) and fits(other, part))
    begin = before.startswith(before_other) or before_other.startswith(before)
    return begin and (after.endswith(after_other) or after_other.endswith(after))


def _part_form(part: str) -> tuple[bool, int, int]:
    before, star, after = part.partition(EACH)
    return (False, len(before) + len(after), len(before)) if star else (True, 0, 0)


def _filled(form: PatternForm, parts: list[str]) -> str:
    """Return the only pattern of a form that may match a name of these parts; empty if none can."""
    if len(parts) != len(form):
        return ""
    filled = list[str]()
    for part, (is_whole, length, before) in zip(parts, form, strict=True):
        if len(part) < length:
            return ""
        filled.append(part if is_whole else f"{part[:before]}{EACH}{part[len(part) - length + before :]}")
    return "/".join(filled)


class PatternValues(NamedValues[T]):
    """Values by name or pattern. `*` in a pattern is any number of characters, also none, but no slash.

    The name itself decides before all patterns. Of patterns, the most specific one decides. Their parts between slashes
    are compared one after the other, as the tenant's before the namespace's. A part without `*` is more specific than
    one with `*`; of two with `*`, the one with more characters beside `*`; of two with as many, the one with more
    characters before `*`. Two patterns that are equal in all of this do not match the same name.

    Each name that a pattern matches has the value for itself, except at levels by a `MatchedPart`. A look-up takes as
    many steps as the patterns have different forms, whatever their number: for each form, one pattern could match, and
    it is looked up by its text.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts = Counter[PatternForm]()
        self._forms: list[PatternForm] = []
        """The forms of the patterns, the most specific first."""

    def put(self, name: str, value: T) -> None:
        """Set the value of a name or pattern.

        Raises:
            ValueError: If a part of it has more than one `*`.
        """
        if is_pattern(name) and name not in self.by_name:
            self._count(form_of(name), 1)
        super().put(name, value)

    def take_back(self, name: str) -> None:
        """Take the value of a name or pattern back, if it has one."""
        if is_pattern(name) and name in self.by_name:
            self._count(form_of(name), -1)
        super().take_back(name)

    def matches(self, own: str) -> Iterable[tuple[str, T]]:
        """Return the names and patterns that are for a stream's own name, and their values; the narrowest first."""
        named = super().matches(own)
        return chain(named, self._matching(own)) if self._forms else named

    def copy(self) -> Self:
        """Return an independent copy."""
        other = super().copy()
        other._counts = self._counts.copy()  # noqa: SLF001 - of the same class
        other._forms = list(self._forms)  # noqa: SLF001
        return other

    def _matching(self, own: str) -> Iterator[tuple[str, T]]:
        parts = own.split("/")
        for form in self._forms:
            pattern = _filled(form, parts)
            value = self.by_name.get(pattern)
            if value is not None and pattern != own:
                yield pattern, value

    def _count(self, form: PatternForm, times: int) -> None:
        self._counts[form] += times
        if not self._counts[form]:
            del self._counts[form]
        self._forms = sorted(self._counts, reverse=True)


class Networks(Generic[T]):
    """Values by network: the narrowest network that holds an address decides.

    A look-up takes as many steps as there are different prefix lengths.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], dict[int, T]] = {}
        self._lengths: list[tuple[int, int]] = []

    def put(self, network: str, value: T | None) -> None:
        """Set the value of `10.0.0.0/8`, `10.1.2.3`, `2001:db8::/32` …; None takes it back.

        Raises:
            ValueError: If it is neither a network nor an address.
        """
        parsed = ip_network(network)
        key, bits = (parsed.version, parsed.prefixlen), int(parsed.network_address)
        if value is not None:
            self._tables.setdefault(key, {})[bits] = value
        elif key in self._tables:
            self._tables[key].pop(bits, None)
            if not self._tables[key]:
                del self._tables[key]
        self._lengths = sorted(self._tables, reverse=True)

    def find(self, address: str) -> T | None:
        """Return the value of the narrowest network around `address`; None without one, or if it is no address."""
        return next(self.around(address), None)

    def around(self, address: str) -> Iterator[T]:
        """Yield the values of all networks around `address`, the narrowest first; none if it is no address."""
        parsed = _parsed(address)
        if parsed is None:
            return
        bits, most = int(parsed), parsed.max_prefixlen
        for version, length in self._lengths:
            if version == parsed.version:
                value = self._tables[version, length].get(bits >> (most - length) << (most - length))
                if value is not None:
                    yield value

    def copy(self) -> "Networks[T]":
        """Return an independent copy."""
        other = Networks[T]()
        other._tables = {key: dict(table) for key, table in self._tables.items()}
        other._lengths = list(self._lengths)
        return other

    def __bool__(self) -> bool:
        return bool(self._tables)


class NetworkValues(NamedValues[T]):
    """Values by address or network, each for the addresses in it."""

    def __init__(self) -> None:
        super().__init__()
        self._networks = Networks[str]()
        """The names, by the network of each."""

    def put(self, name: str, value: T) -> None:
        """Set the value of a network.

        Raises:
            ValueError: If it is neither a network nor an address.
        """
        self._networks.put(name, name)
        super().put(name, value)

    def take_back(self, name: str) -> None:
        """Take the value of a network back, if it has one."""
        self._networks.put(name, None)
        super().take_back(name)

    def matches(self, own: str) -> Iterable[tuple[str, T]]:
        """Yield the networks around an address, and their values; the narrowest first."""
        for name in self._networks.around(own):
            yield name, self.by_name[name]

    def copy(self) -> Self:
        """Return an independent copy."""
        other = super().copy()
        other._networks = self._networks.copy()  # noqa: SLF001 - of the same class
        return other


@lru_cache(MOST_PARSED)
def counted_as(address: str) -> str:
    """Return the name under which a client is counted: an IPv4 address itself, or the /64 of an IPv6 address."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((int(parsed), IPV6_HOST), strict=False))
    return str(parsed) if parsed else address


@lru_cache(MOST_PARSED)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed
