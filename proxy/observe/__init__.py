"""Observability: counters, totals, the access log, the operator's log."""
