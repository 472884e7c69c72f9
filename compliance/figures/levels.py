"""The levels of limits: the lines of streams name the members of each."""

SHARED = ("proxy", "tenant", "namespace", "resource_group", "partitioned_topic", "topic", "role", "address", "exempt")
"""Those that several streams may share."""
LEVELS = (*SHARED, "subscription", "producer")
