"""The proxy: the only place where Pulsar's frames meet limits, sockets and real time."""
