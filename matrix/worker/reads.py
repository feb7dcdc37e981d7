"""What the user's own code reads beside its sources: variables of the environment, and files of data.

A result depends on them as on the sources. Who reads is the nearest frame that is no code of Python's own. What is
kept is told by the file that reads, since a module is imported, and reads, once a process, and serves every case
after that.
"""

from __future__ import annotations

import os
import pathlib
import sys
import sysconfig
import threading

from matrix.loading import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

# The reader of what was read since the request began, whoever read it; and the name of all variables together.
NOW = ""
ALL = "*"
_INSTALLED = frozenset(("site-packages", "dist-packages"))
# Nobody's data lies there: environments, repositories, what is compiled or cached.
_PASSED_OVER = frozenset((*_INSTALLED, "__pycache__", "node_modules"))
_PYTHONS_OWN = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib")})
_OURS = str(pathlib.Path(__file__).resolve().parent.parent) + os.sep


class Reads:
    """What was read in this process, by the file that read it."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = list(folders)
        self._roots: dict[str, tuple[str, ...]] = {}
        self._variables: dict[str, set[str]] = {}
        self._files: dict[str, dict[str, str]] = {}
        self._written: set[str] = set()
        self._busy = threading.local()

    def watch(self) -> None:
        """From here on; there is no way back."""
        sys.addaudithook(self._hook)
        environ: Any = type(os.environ)
        item, names = environ.__getitem__, environ.__iter__

        def note(name: Any) -> None:
            caller = sys._getframe(1)
            # Dynamo, which traces what calls this, calls it itself: the user's frame is above torch's then.
            if caller.f_code in watched:
                self._variable(name, caller.f_back, past_packages=False)
            else:
                self._variable(name, caller, past_packages=True)

        def watched_item(own: Any, name: Any) -> Any:
            note(name)
            return item(own, name)

        def watched_names(own: Any) -> Any:
            note(ALL)
            return names(own)

        watched = (watched_item.__code__, watched_names.__code__)
        # As torch.compiler.assume_constant_result: Dynamo would give up at a look at frames.
        note._dynamo_marked_constant = True  # type: ignore[attr-defined]

        environ.__getitem__, environ.__iter__ = watched_item, watched_names
        # No audit event tells that a file was looked for; what is not there is never opened.
        stat = os.stat

        def watched_stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
            self._unless_busy(path, os.O_RDONLY, sys._getframe(1), past_packages=False)
            return stat(path, *arguments, **options)

        for able in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
            if stat in able:
                able.add(watched_stat)
        os.stat = watched_stat

    def begin(self, path: str) -> None:
        """A request about the case file at ``path`` begins."""
        folder = str(pathlib.Path(path).parent)
        if path and folder not in self._folders:
            self._folders.append(folder)
            self._roots.clear()
        self._variables.pop(NOW, None)
        self._files.pop(NOW, None)

    def told(self) -> dict[str, dict[str, Any]]:
        """The names of variables, and the digests of files, by reader, as JSON-able data."""
        return {
            reader: {
                "variables": sorted(self._variables.get(reader, ())),
                "files": dict(self._files.get(reader, {})),
            }
            for reader in {**self._variables, **self._files}
        }

    def _variable(self, name: Any, frame: FrameType | None, *, past_packages: bool) -> None:
        if reader := _reader(frame, past_packages=past_packages):
            text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
            for each in (reader, NOW):
                self._variables.setdefault(each, set()).add(text)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._unless_busy(arguments[0], arguments[2], sys._getframe(1), past_packages=True)

    def _unless_busy(self, name: Any, flags: int, frame: FrameType, *, past_packages: bool) -> None:
        if not getattr(self._busy, "here", False):
            self._busy.here = True  # what this opens itself
            try:
                self._opened(name, flags, frame, past_packages=past_packages)
            finally:
                self._busy.here = False

    def _opened(self, name: Any, flags: int, frame: FrameType, *, past_packages: bool) -> None:
        if isinstance(name, int):  # a descriptor, opened before
            return
        path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100  # links stay
        reader = _reader(frame, past_packages=past_packages)
        if not reader or not self._is_data(path, reader):
            return
        if flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_TRUNC:
            self._written.add(path)
        elif path not in self._written:
            found = self._files.setdefault(reader, {})
            if path not in found:
                found[path] = digest(path)
            self._files.setdefault(NOW, {})[path] = found[path]

    def _is_data(self, path: str, reader: str) -> bool:
        below = next((path[len(root) :] for root in self._roots_of(reader) if path.startswith(root)), "")
        folders = pathlib.PurePath(below).parts[:-1]
        return bool(below) and not any(each.startswith(".") or each in _PASSED_OVER for each in folders)

    def _roots_of(self, reader: str) -> tuple[str, ...]:
        """Where data is looked for: beside the code that reads it, beside the case, in folders of ``pythonpath``."""
        if reader not in self._roots:
            places = [pathlib.Path(each) for each in (*self._folders, os.path.dirname(reader))]  # noqa: PTH120
            roots = (f"{each}{os.sep}" for place in places for each in (place.absolute(), place.resolve()))
            self._roots[reader] = tuple(dict.fromkeys(roots))
        return self._roots[reader]


def telling(send: Callable[[dict[str, Any]], None], reads: Reads) -> Callable[[dict[str, Any]], None]:
    """``send``, of parts with what was read for them."""

    def tell(message: dict[str, Any]) -> None:
        if "part" in message:
            message = {**message, "part": {**message["part"], "reads": reads.told()}}
        send(message)

    return tell


def _reader(frame: FrameType | None, *, past_packages: bool) -> str:
    """The file of the user's that reads; empty where it is an installed package, unless one looks past those."""
    while frame is not None:
        file = frame.f_code.co_filename
        packages = _packages()
        if not file.startswith(("<", *_PYTHONS_OWN)) or file.startswith(packages):
            if not file.startswith((_OURS, *packages)):
                return file
            if not past_packages:
                return ""
        frame = frame.f_back
    return ""


def is_installed(file: str) -> bool:
    """Whether the file is Python's own or an installed package's, and nothing of the user's."""
    return file.startswith((*_PYTHONS_OWN, *_packages()))


def _packages() -> tuple[str, ...]:
    """Where packages lie. An overlay has those of the host's interpreter too, outside its own prefix.

    All of a prefix is counted where it is an environment's; below that of a system's Python, /usr, code of the user's
    may lie.
    """
    folders = [path for path in sys.path if path.rpartition(os.sep)[2] in _INSTALLED]
    prefixes = [each for each in (sys.prefix, sys.exec_prefix) if each != sys.base_prefix]
    return tuple(f"{each}{os.sep}" for each in (*prefixes, *folders))
