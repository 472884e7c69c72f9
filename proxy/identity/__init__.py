"""The identity of clients: what a client shows in CONNECT is verified, and becomes a role that is proved."""
