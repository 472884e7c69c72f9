"""More than one core: worker processes serve the clients, and one process that has all limits supervises them."""
