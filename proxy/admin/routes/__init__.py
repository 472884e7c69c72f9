"""Routes of the admin address, by path: Sluice's own REST under `/sluice/`, and Pulsar's under `/admin/`."""
