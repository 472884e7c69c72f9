"""Access logs in, compliance report out, on Spark. Knows the access log's record and nothing of the proxy."""
