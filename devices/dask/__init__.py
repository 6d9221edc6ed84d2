"""Dask's schedulers: threads of this process, or workers of a cluster."""
