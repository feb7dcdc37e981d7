"""A GPU watched while it is measured on: readings on a thread of their own, by time.

No round waits for a reading, which may take longer than the round.
"""

from __future__ import annotations

import bisect
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.gpus.nvml import Reading

_PAUSE_S = 0.002


class Watch:
    """Reads for as long as it is entered. Without ``read`` there is nothing to see."""

    def __init__(self, read: Callable[[], Reading] | None) -> None:
        self._read = read
        self._stop = threading.Event()
        self._times: list[float] = []
        self._readings: list[Reading] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._read:
            self._look()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._read:
            self._stop.set()
            self._thread.join()
            self._look()
        if self._error:
            raise self._error

    def around(self, began: float, ended: float) -> tuple[Reading, ...]:
        """The last reading before ``began`` and the last one before ``ended`` (of ``time.perf_counter``).

        So the stretches of rounds that follow on each other do too: what a counter gains falls into one of them.
        """
        if not self._times:
            return ()
        return self._before(began), self._before(ended)

    def _before(self, moment: float) -> Reading:
        return self._readings[max(bisect.bisect_right(self._times, moment) - 1, 0)]

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                self._look()
        except BaseException as error:  # noqa: BLE001 - raised where the watch ends
            self._error = error

    def _look(self) -> None:
        assert self._read is not None
        reading = self._read()
        self._times.append(time.perf_counter())
        self._readings.append(reading)
