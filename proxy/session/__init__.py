"""A client connection and its broker connection: transports, data paths, streams, and the handling of commands."""
