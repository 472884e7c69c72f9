"""The access log's record: the one thing that the proxy and the compliance job share."""
