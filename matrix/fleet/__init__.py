"""A run on the hosts of a Ray cluster: Ray places, retries and isolates; the work is what ``run`` does on one host.

The driver cuts the planned cells into slices of *units* (one case at one point on one target, in all environments, so
that nothing is ever compared across hosts), hosts answer with the rows of a run folder, and the driver lays them
together. Nothing here imports ray but :mod:`matrix.fleet.cluster`.
"""
