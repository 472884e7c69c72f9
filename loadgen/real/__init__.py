"""A real Pulsar on this machine: its jars, a standalone broker, its admin tool."""
