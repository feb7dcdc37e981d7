"""Ring 1: what runs inside a matrix environment. Depends on torch, triton, NumPy and ring 0, nothing else."""
