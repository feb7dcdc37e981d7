"""Files for a user's repository: a configuration and a first case, both with comments to start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

CASES = "matrix_cases"

_CONFIGURATION = f"""\
# triton-matrix: which environments are compared, on what. Every key is optional.

baseline = "newest-but-one"    # what you run today: a Triton release such as "3.8.0", or an id
candidate = ["newest"]         # what you think of upgrading to; several are judged one by one
kernels = ["{CASES}"]      # case files and folders of your own
builtin = false                # true: the kernels that triton-matrix brings run beside yours
# targets = ["sm_80", "sm_90"] # by default sm_80, sm_90, sm_100 and sm_120
# pythonpath = ["src"]         # where your kernels are imported from, if they are not installed

# [[environments]]             # a pair that is not among the stock ones
# id = "nightly"
# triton = "triton"            # anything uv takes: a wheel, an index, a git revision
# index = "https://example.org/nightlies/simple"
# torch = "2.15.0"
"""

_CASE = '''\
"""A first case: replace kernel, launch and reference by your own, or import them."""

import torch
import triton
import triton.language as tl

from matrix import Case

# REQUIRES = ["my-kernels==1.2"]  # packages that every environment gets for this file


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def double(x, *, block):
    """Launches the kernel, allocates its output and returns it. `block` is filled from the axis of that name."""
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


case = Case(
    name="double",
    run=double,
    reference=lambda x: 2 * x,  # plain torch; it is called with float64
    inputs=lambda make, p: [make.normal((p.n,), p.dtype)],  # the same bits in every environment
    axes={"dtype": ["fp16", "fp32"], "block": [512, 1024]},  # crossed with the points below
    interpret=[{"n": 1}, {"n": 1023}, {"n": 4097}],  # values, on the CPU; on a GPU these are for correctness too
    compile=[{"n": 1 << 24}],  # compiled for every target, with no GPU
    # timing=[{"n": 1 << 24}],  # timed, on a host with a GPU
    # bytes_moved=lambda p: 2 * p.n * 4,  # then GB/s are reported
)
'''


def initialise(folder: Path) -> list[Path]:
    """Write the files into ``folder`` and return them.

    Raises :class:`UsageError` where one is there, writing none; :class:`StorageError` where one cannot be written.
    """
    files = {folder / "matrix.toml": _CONFIGURATION, folder / CASES / "double.py": _CASE}
    in_the_way = [path.parent for path in files if path.parent.exists() and not path.parent.is_dir()]
    if there := [str(path) for path in (*files, *in_the_way) if path.exists()]:
        raise UsageError(f"already there: {', '.join(there)}", hint="nothing was written; move it away, or edit it")
    for path, text in files.items():
        write_atomically(path, text.encode())
    return list(files)
