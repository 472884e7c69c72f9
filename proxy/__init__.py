"""The proxy: the only package in which Pulsar's frames meet limits, sockets and real time."""
