"""Brokers: the allow-list of those that clients may reach, and the lookups that find a topic's."""
