"""The command line's way in, and the only place that exits."""

from __future__ import annotations

import sys
import traceback

from matrix.commands.main import command
from matrix.errors import ExitCode, MatrixError


def main() -> None:
    """Run the command; every error of ours becomes one message and its exit code."""
    try:
        code = command()
    except MatrixError as error:
        print(error.told(), file=sys.stderr)  # noqa: T201
        code = error.exit_code
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept; run again to resume", file=sys.stderr)  # noqa: T201
        code = ExitCode.INTERRUPTED
    except Exception:  # noqa: BLE001 - Python's own exit code would say that something regressed
        traceback.print_exc()
        code = ExitCode.INCOMPLETE
    sys.exit(int(code))


if __name__ == "__main__":
    main()
