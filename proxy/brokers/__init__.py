"""Which brokers there are: the allow-list, and lookups that find a topic's."""
