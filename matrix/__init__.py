"""triton-matrix: do your GPU kernels survive the next Triton or PyTorch?

This package root is ring 0: it imports nothing but the standard library, so that a worker can load it
inside any environment. Case files need only what is exported here.
"""

from matrix.case import Case, Expect, Params, Tolerance
from matrix.loading import beside

__all__ = ["Case", "Expect", "Params", "Tolerance", "__version__", "beside"]
__version__ = "0.1.0"
