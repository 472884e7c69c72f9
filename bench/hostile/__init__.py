"""Hostile clients and brokers against a real `sluice serve`: what each kind costs in memory, and neighbours in time."""
