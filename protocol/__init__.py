"""Pulsar's binary protocol: bytes in, commands and tallies out. No I/O, no clock, no policy."""
