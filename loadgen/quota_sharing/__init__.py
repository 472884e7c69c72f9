"""Simulation of a limit that proxies share: the product's own core, beside models of Pulsar's formula and of PIP-82."""
