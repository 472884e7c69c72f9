"""The commands that run or ask a proxy, and their output; what a command needs is imported when it runs."""
