"""`sluice doctor`: the state of a running proxy, compared with the broker's."""
