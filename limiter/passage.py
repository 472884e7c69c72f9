"""What a session asks when entries of its streams come or are dropped, whoever answers.

    Relay, ExactWay, Streams ─▶ Passage ◀── Gate: the limits are here            (`gate.py`)
                                        ◀── Deputy: they are in another process  (`workers/deputy.py`)

Of one stream nothing overtakes what is held of it.
"""

from mypy_extensions import mypyc_attr

from limiter.limiter import Limiter
from limiter.stream import Entry, Stream


@mypyc_attr(allow_interpreted_subclasses=True)  # a base class and no `Protocol`: of that, compiled code asks by name
class Passage:
    """Lets entries pass or wait. Sizes are metered bytes, times monotonic nanoseconds."""

    # ---- a chunk, all or nothing

    def admit(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth of one stream, if all of it may pass; else nothing.

        `messages` are, here and in `withdraw`, those that are charged (`Stream.charged`).
        """
        raise NotImplementedError

    def withdraw(self, stream: Stream, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""
        raise NotImplementedError

    def count_admitted(self, stream: Stream, counts: tuple[int, int, int], largest: tuple[int, int]) -> None:
        """Note what was admitted: (entries, messages, bytes), and the largest entry's (messages, bytes)."""
        raise NotImplementedError

    # ---- entry by entry

    def count_offered(self, stream: Stream, entries: int, messages: int, size: int) -> None:
        """Note what arrived and was not admitted; what becomes of it, is asked next."""
        raise NotImplementedError

    def pass_entry(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge and count one entry, if it may pass at once; else do nothing."""
        raise NotImplementedError

    def hold(self, stream: Stream, entry: Entry, now: int) -> None:
        """Keep `entry` until `Stream.release` is called with it, perhaps before this returns."""
        raise NotImplementedError

    def drop_held(self, stream: Stream, now: int) -> list[Entry]:
        """Forget what is held of a stream, and give it back."""
        raise NotImplementedError

    def count_rejected(self, stream: Stream, limiter: Limiter, messages: int, size: int) -> None:
        """Note an entry that the session refuses because of `limiter`, one of the stream's chain."""
        raise NotImplementedError

    def count_dropped(self, stream: Stream, messages: int, size: int) -> None:
        """Note what arrived of a stream that ended before it could be held."""
        raise NotImplementedError
