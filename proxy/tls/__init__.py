"""TLS: the certificates and contexts of listeners and of connections to brokers, and the transport of their records."""
