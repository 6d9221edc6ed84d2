"""Arrays in chunks on Dask: a recorded graph becomes tasks, one for each chunk and fused kernel."""
