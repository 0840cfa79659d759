"""One HTML file that holds every result and needs nothing else."""
