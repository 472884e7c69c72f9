"""The admin address: metrics, health, streams, and the REST that sets limits."""
