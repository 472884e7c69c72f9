"""Who changes something."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Who:
    """For the audit log: a name (of a token or certificate, or the cause of a reload) and an address."""

    name: str
    address: str
