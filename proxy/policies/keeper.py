"""What a book keeps besides limits: how bodies of one kind of key come into force."""

from typing import Protocol

from proxy.policies.key import Key


class Keeper(Protocol):
    """Knows what the bodies of one kind of key mean; the book knows only that they are text."""

    def check(self, key: Key, kept: str | None) -> None:
        """Whether this could be in force.

        Raises:
            BodyError: If it could not.
        """

    def load(self, key: Key, kept: str) -> None:
        """It was kept by an earlier run: in force before the first client connects."""

    def take(self, key: Key, kept: str | None) -> None:
        """It is on disk: in force from now on. Is not to fail, as nothing takes it off the disk again."""
