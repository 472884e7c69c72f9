"""The rows about deliveries: a backlog at the broker, and how the consumers of a peer get it."""
