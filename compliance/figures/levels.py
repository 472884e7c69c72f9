"""The levels whose members the lines of streams name themselves: all but resource groups."""

LEVELS = ("proxy", "tenant", "namespace", "partitioned_topic", "topic", "subscription", "producer", "role", "address")
SHARED = ("proxy", "tenant", "namespace", "partitioned_topic", "topic", "role", "address")
"""Those that several streams may share."""
