"""Which workloads are there? One file each: what happens, and what is taken from it."""
