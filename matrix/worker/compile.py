"""The compile stage: run a case with its launches compiled and not run, and describe every kernel."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import pathlib
import re
import time

from matrix.case import Params
from matrix.model import Outcome
from matrix.worker import assemble, cases, failures
from matrix.worker.generated import Uncaptured, capturing
from matrix.worker.inputs import Blank
from matrix.worker.launches import Launch, Part, Recorder
from matrix.worker.seeds import seed_of
from matrix.worker.target import Profile, check_arch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from matrix.case import Case

# In the order in which the compiler makes them; "source" is not an artefact of the pipeline.
ARTIFACTS = ("ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco")


def prepare() -> None:
    """Do beforehand what Triton does once a process: half a second of hashing its own files.

    Otherwise the first kernel that a process compiles would seem that much slower than it is.
    """
    for name in ("triton.runtime.cache", "triton.compiler.compiler"):  # since 3.5, before
        key = getattr(importlib.import_module(name), "triton_key", None)
        if key is not None:
            key()
            return


class Compiler:
    """Answers compile requests for one target."""

    def __init__(self, profile: Profile, send: Callable[[dict[str, Any]], None]) -> None:
        self._profile = profile
        self._send = send
        # A kernel that several cells share is compiled once a process; its figures are kept for the rest.
        self._seconds: dict[str, dict[str, float]] = {}
        self._ptxas = ptxas_version(profile.arch) if isinstance(profile.arch, int) else ""

    def answer(self, request: dict[str, Any]) -> None:
        """Compile one point; parts are sent as they end, so that a later crash loses none of them."""
        if request.get("op") == "assemble":
            self._send({"id": request["id"], "part": assemble.answer(request, self._profile, self._ptxas)})
            self._send({"id": request["id"], "done": True})
            return
        identity, spool = request["id"], pathlib.Path(request["spool"])

        def finished(part: Part) -> None:
            self._send({"id": identity, "part": self._part(part, spool)})

        recorder = Recorder(
            began=lambda label: self._send({"id": identity, "begin": label}),
            at=lambda place: self._send({"id": identity, "at": place}),
            finished=finished,
            skip=frozenset(request.get("skip", ())),
            configs=request.get("configs", 0),
        )
        started = time.perf_counter()
        ended_outside = self._run(request, recorder)
        main, sole = recorder.part, not recorder.tuned
        if ended_outside is not None:
            self._send({"id": identity, "part": {**ended_outside, "seconds": time.perf_counter() - started}})
        elif main.launches or main.failure is not None or sole:
            finished(main)
        self._send({"id": identity, "done": True})

    def _run(self, request: dict[str, Any], recorder: Recorder) -> dict[str, Any] | None:
        """Run the case; a result only where it ended outside the compiler."""
        params = Params(request["params"])
        try:
            case = cases.find(request["path"], request["case"])
            blank = Blank(seed_of(case, params))
            inputs = list(case.inputs(blank, params))
            recorder.drawn = blank.drawn
        except (Exception, SystemExit) as error:
            return _failed(_case_outcome(error), error)
        try:
            with recorder.active(), _generating(case, recorder) as faked:
                cases.call(case.run, faked(inputs), params)
        except Uncaptured as error:
            return _failed(Outcome.UNSUPPORTED, error)
        except (Exception, SystemExit) as error:
            if recorder.part.failure is None and not _is_compiler_error(error):
                return _failed(_case_outcome(error), error)
            recorder.part.failure = recorder.part.failure or error
        return None

    def _part(self, part: Part, spool: pathlib.Path) -> dict[str, Any]:
        """A finished part as JSON-able data, its artefacts written to the spool."""
        result: dict[str, Any] = {"config": part.config, "seconds": part.seconds, "kernels": []}
        if part.failure is not None:
            return {**result, **_failed(failures.compile_outcome(part.failure), part.failure)}
        if not part.launches:
            reason = "run() returned without launching a Triton kernel"
            return {**result, "outcome": Outcome.NOT_LAUNCHED, "reason": reason, "detail": ""}
        result["kernels"] = [self._kernel(i, part.config, launch, spool) for i, launch in enumerate(part.launches)]
        too_big = [problem for kernel in result["kernels"] if (problem := self._misfit(kernel))]
        outcome = Outcome.DOES_NOT_FIT if too_big else Outcome.PASSED
        return {**result, "outcome": outcome, "reason": "; ".join(too_big), "detail": ""}

    def _misfit(self, kernel: dict[str, Any]) -> str:
        needs, has = kernel["shared_bytes"], self._profile.shared_per_block
        if needs <= has:
            return ""
        return f"{kernel['name']} needs {needs} B of shared memory, {self._profile.target} has {has} B a block"

    def _kernel(self, index: int, config: str, launch: Launch, spool: pathlib.Path) -> dict[str, Any]:
        compiled, metadata = launch.compiled, _metadata(launch.compiled)
        texts = {kind: _bytes(compiled.asm[kind]) for kind in ARTIFACTS if kind in compiled.asm}
        assembly, code = ("ptx", "cubin") if "ptx" in texts else ("amdgcn", "hsaco")
        check_arch(texts[assembly].decode(), self._profile)
        identity = hashlib.sha256(texts[code]).hexdigest()
        if launch.stage_seconds:
            self._seconds[identity] = launch.stage_seconds
        source, line = _source(launch.function)
        texts |= {"source": source.encode()} if source else {}
        constants, signature = _signature(compiled)
        return {
            "name": metadata["name"],
            "index": index,
            "config": config,
            "source_file": launch.function.fn.__code__.co_filename,
            "source_line": line,
            "options": {k: v for k, v in metadata.items() if k not in _NOT_OPTIONS},
            "num_warps": metadata["num_warps"],
            "num_stages": metadata["num_stages"],
            "num_ctas": metadata["num_ctas"],
            "shared_bytes": metadata["shared"],
            "tensor_memory_columns": metadata.get("tmem_size") or 0,
            "signature": signature,
            "constants": constants,
            "grid": launch.grid,
            "arguments": launch.arguments,
            "ptxas_version": self._ptxas,
            "seconds": self._seconds.get(identity, {}),
            "artifacts": {kind: _spool(spool, data) for kind, data in texts.items()},
        }


@contextlib.contextmanager
def _generating(case: Case, recorder: Recorder) -> Iterator[Callable[[list[Any]], list[Any]]]:
    """What leads a case through torch.compile, where it goes through it; yields what its inputs become."""
    if not case.torch_compile:
        yield lambda inputs: inputs
        return
    with capturing(recorder.generated) as faked:
        yield faked


_NOT_OPTIONS = frozenset({"hash", "name", "target", "shared", "tmem_size", "tensordesc_meta", "triton_version"})


def ptxas_version(arch: int) -> str:
    """The version of the assembler that this release uses for ``arch`` (3.3 on, a release may carry two)."""
    from triton.backends.nvidia.compiler import get_ptxas_version as ask

    try:
        text = ask(arch)
    except TypeError:  # 3.0 to 3.2, 3.4 and 3.5 know one ptxas
        text = ask()
    found = re.search(r"V(\d+\.\d+\.\d+)", str(text))
    return found[1] if found else "unknown"


def _is_compiler_error(error: BaseException) -> bool:
    return type(error).__module__.startswith("triton.") or type(error).__name__ == "OutOfResources"


def _case_outcome(error: BaseException) -> Outcome:
    if isinstance(error, MemoryError):
        return Outcome.OUT_OF_MEMORY
    return Outcome.REFUSED if failures.is_refusal(error) else Outcome.CASE_ERROR


def _failed(outcome: Outcome, error: BaseException) -> dict[str, Any]:
    return {
        "config": "",
        "outcome": outcome,
        "reason": failures.reason(error),
        "detail": failures.detail(error),
        "kernels": [],
    }


def _metadata(compiled: Any) -> dict[str, Any]:
    raw = compiled.metadata
    values = raw._asdict() if hasattr(raw, "_asdict") else dict(vars(raw))
    return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value


def _signature(compiled: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The constants folded into the kernel and the types of the arguments left, by argument name."""
    source = compiled.src
    names = list(source.fn.arg_names)

    def named(key: Any) -> str:
        index = key[0] if isinstance(key, tuple) else key
        return names[index] if isinstance(index, int) else str(index)

    constants = {named(k): str(v) for k, v in getattr(source, "constants", {}).items()}
    signature = {named(k): str(v) for k, v in source.signature.items()}
    return constants, {k: v for k, v in signature.items() if k not in constants and v != "constexpr"}


def _source(function: Any) -> tuple[str, int]:
    """The kernel's own text from ``def`` on, and the line that it begins in; no text where it is in no file."""
    first: int = function.fn.__code__.co_firstlineno
    try:
        lines, _ = inspect.getsourcelines(function.fn)
    except (OSError, TypeError):
        return "", first
    # Decorators are left out: what torch generates says in them which release of Triton it is for.
    skipped = next((place for place, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return "".join(lines[skipped:]), first + skipped


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode()


def _spool(spool: pathlib.Path, data: bytes) -> str:
    """Write ``data`` under its digest, once; the control process moves it into the artefact store."""
    name = hashlib.sha256(data).hexdigest()
    path = spool / name
    if not path.exists():
        partial = spool / f"{name}.{os.getpid()}.partial"
        partial.write_bytes(data)
        partial.rename(path)
    return name
