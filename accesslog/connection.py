"""The lines of connections: their ends, their pauses, and what they were refused."""

from accesslog.head import LineHead


class ConnectionLine(LineHead, kw_only=True, tag="connection"):
    """One client connection, written when it ends; the span is its life."""

    connection_id: int
    """Counts the connections of one run."""
    client_address: str
    """As in interval lines."""
    client_version: str
    """As the client's CONNECT says."""
    client_role: str = ""
    """What the client authenticated as; empty if that is not known."""
    role: str
    """`lookup`, `data`, or `handshake` if it never got that far."""
    broker: str
    """Address of the broker that it was connected to, or empty."""
    end_cause: str
    """Why it ended, one of the fixed words of `sluice_connections_ended_total`."""
    detail: str
    """The same for humans; empty where the cause says all."""
    bytes_from_client: int
    """Bytes read from the client, all that TCP carried."""
    bytes_from_broker: int
    """Bytes read from the broker, likewise."""


class ThrottleLine(LineHead, kw_only=True, tag="throttle"):
    """One pause of reading for one cause, of 50 ms at least, written at its end."""

    connection_id: int
    """Whose bytes were not read."""
    client_address: str
    """As in interval lines."""
    side: str
    """Whose bytes were not read: `client` or `broker`."""
    cause: str
    """What raised the throttle count."""


class RejectLine(LineHead, kw_only=True, tag="reject"):
    """What one connection was refused for one reason since the heartbeat before; at most 1,000 such lines a heartbeat.

    Refused messages are in interval lines (`rejected_messages`), refused connections are connection lines.
    """

    connection_id: int
    """Who asked; 0 for all that found no line of their own."""
    client_address: str
    """As in interval lines."""
    client_role: str = ""
    """What the client authenticated as; empty if that is not known."""
    topic: str
    """Full name of the topic of the last such request; empty where none is named."""
    reason: str
    """The bound that refused, by its key in the configuration's `admission`; or `blocked`."""
    detail: str
    """What the client was told the last time, at most 1,000 characters."""
    rejected: int
    """How many lookups, producers or consumers were refused."""
