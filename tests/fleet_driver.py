"""`triton-matrix fleet` with another work for its hosts: `fleet_driver.py WORK ARGUMENTS...`."""

import functools
import sys

import fleet_work

from matrix.__main__ import main
from matrix.fleet import fleet

if __name__ == "__main__":
    work = getattr(fleet_work, sys.argv.pop(1))
    fleet.Fleet = functools.partial(fleet.Fleet, work=work)
    main()
