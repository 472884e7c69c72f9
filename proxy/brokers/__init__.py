"""Brokers: the allow-list of brokers that clients may reach, and the lookups of topics' brokers."""
