"""The limits that streams are under, by the columns of their lines."""

from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compliance.excerpt import only
from compliance.figures.sums import Values, with_columns
from limiter import levels as limiting

_OF_ONE = {limiting.SUBSCRIPTION, limiting.PRODUCER}
SHARED = tuple(level.word for level in limiting.LEVELS if not _OF_ONE.intersection(level.limited))
"""Levels whose limits several streams of different names may share."""
LEVEL_WORDS = (*SHARED, *(level.word for level in limiting.LEVELS if level.word not in SHARED))
LIMITED = tuple(dict.fromkeys(part for level in limiting.LEVELS for part in level.limited))
SCOPED_BY = tuple(
    dict.fromkeys((*(column for part in LIMITED for column in part.columns), "exempt", "connection_id", "stream_id"))
)
"""Columns of streams' lines that give, with the direction, the names of the limits that a stream is under."""
PARTITION = r"-partition-(0|[1-9]\d{0,9})$"
"""The end of a partition's name."""
HASHED = r"^k[0-9a-f]{4}:[0-9a-f]{16}$"
"""The form of a name that `proxy.observe.log_lines` has hashed."""
OWN_TOPICS = (
    r"^persistent://(pulsar/(system|[^/:]+:[0-9]+)/[^/]*"
    r"|[^/]+/[^/]+/((__change_events|__transaction_buffer_snapshot(_indexes|_segments)?)(-partition-[^-/]+){0,2}"
    r"|[^/]*__transaction_pending_ack(-partition-[^-/]+)?))$"
)
"""Pulsar's own topics. Source: protocol.topic_name.TopicName.is_system"""


def each(column: Values, of: Callable[[Values], Values]) -> Values:
    """Return `of` a column with few different values: it is asked for each of them once."""
    encoded = _one(column).dictionary_encode()
    return of(encoded.dictionary).take(encoded.indices)


def _one(column: Values) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def scoped(lines: pa.Table, levels: Collection[str] = LEVEL_WORDS) -> Iterator[tuple[str, pa.Table]]:
    """Yield, for each level, the lines that have a limit of that level by their names; adds `name` and `member`.

    The members of a proxy's limit are tenants, of a tenant's and a resource group's namespaces, of a namespace's,
    role's and address's topics; of all others the streams' own names. Topics of Pulsar's own are under their own level
    only.
    """
    is_exempt = pc.fill_null(lines["exempt"], False)
    parts = _Parts(lines)
    for level in limiting.LEVELS:
        if level.word in levels:
            name = parts.name(level)
            has_name = pc.and_(name.is_valid(), is_exempt if level.is_of_system else pc.invert(is_exempt))
            yield level.word, only(with_columns(lines, name=name, member=parts.member(level.members)), has_name)


class _Parts(dict[limiting.Part, Values]):
    """The parts that limits look at, from the columns of streams' lines."""

    def __init__(self, lines: pa.Table) -> None:
        super().__init__()
        self._lines = lines

    def __missing__(self, part: limiting.Part) -> Values:
        lines = self._lines
        if part == limiting.NAMESPACE:
            made = pc.binary_join_element_wise(lines["tenant"], lines["namespace"], "/")
        elif part == limiting.PARTITIONED_TOPIC:
            made = each(lines["topic"], lambda topics: pc.replace_substring_regex(topics, PARTITION, ""))
        elif part == limiting.COUNTED_ADDRESS:
            network = pc.fill_null(lines["client_network"], "")
            made = pc.if_else(pc.equal(network, ""), each(lines["client_address"], _address), network)
        else:
            made = lines[part.columns[0]]
        self[part] = made
        return made

    def name(self, level: limiting.Level) -> Values:
        """Return the name of a level's limit on each stream; null where the stream has nothing of that level."""
        parts = [self[part] for part in level.limited]
        if not parts:
            return pa.array([""] * len(self._lines), pa.string())
        name = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "@", null_handling="skip")
        for part in level.limited:
            if part.missing:
                name = pc.if_else(pc.not_equal(self[part], ""), name, None)
        return name

    def member(self, members: str) -> Values:
        """Return the member of a limit that each stream is, or belongs to."""
        of = {"tenant": limiting.TENANT, "namespace": limiting.NAMESPACE, "topic": limiting.TOPIC}
        if members in of:
            return self[of[members]]
        lines = self._lines
        numbers = (lines[name].cast(pa.string()) for name in ("connection_id", "stream_id"))
        stream = pc.binary_join_element_wise(*numbers, "/")
        return pc.binary_join_element_wise(own_name(lines), stream, " on connection ")


def own_name(lines: pa.Table) -> Values:
    """Return the name of each stream's producer or subscription."""
    return pc.if_else(pc.equal(lines["direction"], "publish"), lines["producer_name"], lines["subscription"])


def _address(text: Values) -> Values:
    """A client's address without its port; a keyed hash has none, though its end may look like one."""
    without_port = pc.replace_substring_regex(text, r":\d+$", "")
    return pc.if_else(pc.match_substring_regex(text, HASHED), text, without_port)


def is_exempt(lines: pa.Table) -> Values:
    """Return whether ordinary limits spare a stream: its topic is one of Pulsar's own, whatever its other fields."""
    is_own = each(lines["topic"], lambda topics: pc.match_substring_regex(topics, OWN_TOPICS))
    return pc.and_(pc.fill_null(lines["exempt"], False), is_own)


class LimitsOfLines:
    """The levels of the limits that each line of a stream says to be under."""

    def __init__(self, lines: pa.Table, *, with_lowest: bool = True) -> None:
        pairs = lines["limit_levels"]
        if with_lowest:
            pairs = pc.binary_join_element_wise(pairs, lines["limit_level"], "\n")
        encoded = _one(pairs).dictionary_encode()
        self._of = [_levels(pair) for pair in encoded.dictionary.to_pylist()]
        self._indices = encoded.indices.to_numpy(zero_copy_only=False)

    def of_each(self, value: Callable[[frozenset[str]], int]) -> npt.NDArray[np.int64]:
        """Return a number of each line's levels."""
        values = np.array([value(levels) for levels in self._of] or [0], np.int64)
        of_lines: npt.NDArray[np.int64] = np.take(values, self._indices)
        return of_lines


def _levels(pair: str) -> frozenset[str]:
    levels, _, lowest = pair.partition("\n")
    # A line that names a limit is under it, whatever its other fields are.
    return frozenset([*(levels.split(" ") if levels else ()), *([lowest] if lowest else ())])
