"""Who a client is: what it shows in CONNECT is verified, and becomes a role that is proved."""
