"""One client and its broker connection: legs, relays, streams, and what their commands ask for."""
