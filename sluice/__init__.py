"""The `sluice` command: one front door to the applications, which never import each other."""
