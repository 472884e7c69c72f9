"""The routes of the admin address: Sluice's own REST under `/sluice/`, and Pulsar's under `/admin/`."""
