"""Forwarding of requests that Sluice does not serve to the broker's own admin."""
