"""`sluice top`: what a running proxy does, as a live table."""
