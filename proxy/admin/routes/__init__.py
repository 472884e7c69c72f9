"""What the admin address serves, by paths: Sluice's own REST under `/sluice/`, and Pulsar's under `/admin/`."""
