"""triton-matrix: do your GPU kernels survive the next Triton or PyTorch?

Where things are: ``settings`` (what a user declares), ``provisioning`` (environments on disk), ``running`` (plan,
workers, run), ``worker`` (what runs inside an environment), ``gpus`` (the stages that need one), ``code`` and
``memory`` (facts read off generated code), ``storage`` (tables, artifacts, run folders), ``judging`` (verdicts,
findings, the decision), ``explaining`` (why: chains of evidence, whose change, what else differs), ``reporting``
(pages, JUnit, text), ``nights`` and ``hypotheses`` (what outlives a run), ``fleet`` (a run on the hosts of a Ray
cluster), ``causes`` (reproducer, bisection, upstream report), ``catalogue`` (documented regressions, suites),
``authoring`` (files for kernel authors), ``commands`` (the command line).

This package root is ring 0: it imports nothing but the standard library, so that a worker can load it
inside any environment. Case files need only what is exported here.
"""

from matrix.case import Case, Expect, Params, Tolerance
from matrix.loading import beside

__all__ = ["Case", "Expect", "Params", "Tolerance", "__version__", "beside"]
__version__ = "0.1.0"
