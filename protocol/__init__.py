"""Pulsar's binary protocol: encodes and decodes commands, and counts messages and bytes. No I/O, clock or policy."""
