"""One call of a case, between a profiler's marks: what runs under ``ncu`` in place of a worker.

Nothing before the marks is profiled: not the inputs, nor the first call with its compilation and tuning.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(request: str) -> int:
    """Make the call that the JSON text asks for: ``path, case, params[, pinned, pythonpath, calls]``.

    Prints a line of JSON with the Triton kernels that were launched between the marks. Returns the exit code.
    """
    wanted = json.loads(request)
    sys.path.extend(wanted.get("pythonpath", ()))
    with tempfile.TemporaryDirectory(prefix="matrix-once-") as cache:
        # Read when triton is imported.
        os.environ["TRITON_CACHE_DIR"] = cache
        names = _call(wanted)
    sys.stdout.write(json.dumps({"kernels": names}) + "\n")
    return 0


def _call(wanted: dict[str, Any]) -> list[str]:
    import torch

    from matrix.case import Params
    from matrix.worker import cases, cuda, observe
    from matrix.worker.places import place
    from matrix.worker.seeds import inputs_of

    device, params = cuda.current_device(), Params(wanted["params"])
    case = cases.find(wanted["path"], wanted["case"])
    where = place(case, params, inputs_of(case, params, device=device), 0, device)
    runtime = torch.cuda.cudart()
    with observe.tuned(wanted.get("pinned", {})):
        where.call()
        torch.cuda.synchronize()
        with observe.launches() as launched:
            runtime.cudaProfilerStart()
            for _ in range(int(wanted.get("calls", 1))):
                where.call()
            torch.cuda.synchronize()
            runtime.cudaProfilerStop()
    # A kernel may be named otherwise in the code than in the source.
    return [getattr(getattr(launch.compiled, "metadata", None), "name", launch.name) for launch in launched]
