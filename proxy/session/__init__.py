"""One client and its broker: two transports, two data paths, streams, and what their commands ask for."""
