"""What the proxy tells: counters, totals, the access log, the operator's log."""
