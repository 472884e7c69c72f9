"""Every command that runs or asks a proxy, and what it prints; what a command needs is imported when it runs."""
