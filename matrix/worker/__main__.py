"""Start a worker: ``python -I matrix/worker/__main__.py``, spoken to in JSON lines.

With an argument it is no worker: it makes the one call that the argument asks for (:mod:`matrix.worker.once`).

The package is loaded by path and never put on ``sys.path``: nothing else that lies beside it (a folder
called ``kernels``, say) may become importable inside an environment.
"""

import importlib.util
import pathlib
import sys


def _load_package(root: pathlib.Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "matrix", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["matrix"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    _load_package(pathlib.Path(__file__).resolve().parent.parent)
    if len(sys.argv) > 1:
        from matrix.worker.once import main as once

        sys.exit(once(sys.argv[1]))
    from matrix.worker.loop import main

    sys.exit(main())
