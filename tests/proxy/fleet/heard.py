"""What a link tells, for tests of links."""

import time

from proxy.fleet.link import Callbacks


class Heard:
    """Remembers what a link has told. It is the base of members that are nothing but a link."""

    def __init__(self) -> None:
        self.reports: list[bytes] = []
        self.grants: list[bytes] = []
        self.turns: list[str] = []
        self.asked: list[int] = []
        """When each question was sent whose answer has confirmed that this member is the only coordinator."""
        self.callbacks = Callbacks(
            self.reports.append,
            self.grants.append,
            lambda: self.turns.append("lead"),
            lambda: self.turns.append("unlead"),
            self._confirm,
        )
        self._made_at = time.monotonic_ns()

    def _confirm(self, asked: int) -> None:
        assert max([self._made_at, *self.asked[-1:]]) < asked <= time.monotonic_ns()
        self.asked.append(asked)
