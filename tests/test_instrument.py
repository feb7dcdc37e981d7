"""The instrument's proofs: what is asked of the workers, and that each proof fails where it has to.

The workers are made of numbers here. That the real timer passes only a GPU can show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from worker_client import FAKE_GPU, Client

from matrix.baton import Baton
from matrix.errors import UsageError
from matrix.gpus import proving
from matrix.gpus.doctor import chosen
from matrix.gpus.nvml import Gpu
from matrix.gpus.timing import TimingPlan

if TYPE_CHECKING:
    from conftest import Workshop

    from matrix.gpus.instrument import Proof

FLOOR_US = 3.5
L2 = 60 << 20
PLAN = TimingPlan(rounds_per_block=2, round_us=0, overhead_calls=5, warm_rounds=1)


@dataclass
class FakeWorker:
    """Answers as a worker on a sound GPU would, but for what a test has broken."""

    name: str
    timer_error: float = 0.0
    offset: float = 0.0  # of this worker's times
    blind: bool = False  # more work takes no longer
    gapless: bool = False
    clean_l2: bool = False
    drifts: float = 0.0  # of what is held up now and then
    queue_full: bool = True
    broken_op: str = ""
    asked: list[str] = field(default_factory=list)
    arm: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([*self.name.encode()])

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        op = request["op"]
        self.asked.append(op)
        if op == self.broken_op:
            return {"outcome": "crash", "reason": "the process died of SIGSEGV", "detail": ""}
        return {"outcome": "passed", "reason": "", **getattr(self, f"_{op}")(request)}

    def _true_us(self) -> float:
        params = self.arm["params"]
        extra = 0 if self.blind else params.get("extra", 0)
        base = params["n"] / 4.9e5 if self.arm["case"] == "planted_stream" else 150.0
        return float(base * (1 + extra / 100) * (1 + self.offset))

    def _samples(self, us: float, count: int) -> list[float]:
        return list(us * np.exp(self.random.normal(0, 0.002, count)))

    def _arm_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.arm = request
        return {
            "places": 6, "capturable": True, "kernels": [], "configurations": {},
            "first_call_seconds": 0.3, "warmup_ms": 50.0,
        }  # fmt: skip

    def _slab_lend(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"slab": "one", "path": "/nowhere", "bytes": 1 << 30}

    def _slab_borrow(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _arm_place(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"offsets": [0]}

    def _arm_close(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _arm_estimate(self, _: dict[str, Any]) -> dict[str, Any]:
        us = self._true_us()
        return {"estimate_us": {"cold": us, "warm": us}}

    def _arm_round(self, request: dict[str, Any]) -> dict[str, Any]:
        warm = request["cache"] == "warm" and self.arm["params"]["n"] * 8 < L2 and not self.clean_l2
        us = self._true_us() * (0.6 if warm else 1.0)
        samples = self._samples(us, request["samples"])
        figures = {"queue_full": self.queue_full, "clock_mhz": 1980.0, "busy_us": 1e3, "attempts": 1}
        return {"seconds": 0.01, "samples_us": samples, **figures}

    def _arm_rounds(self, request: dict[str, Any]) -> dict[str, Any]:
        rounds = []
        with Baton(request["baton"]) as baton:
            for number in request["turns"]:
                assert baton.wait(number, 20.0)
                figures = {"turn": number, "began": 0.0, "ended": 0.0, "worker_s": 0.01, "warmup_us": 0.0}
                rounds.append({**figures, **self._arm_round(request)})
                baton.pass_on(number)
        offsets = [request["ahead"]["first"]] if "ahead" in request else []
        return {"rounds": rounds, "offsets": offsets}

    def _arm_fill(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _overhead(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"host_us": self._samples(30.0, request["calls"])}

    def _device(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"l2_bytes": L2}

    def _ceilings(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"copy_gb_s": 4297.0, "matmul_bf16_tflop_s": 742.0}

    def _spin(self, request: dict[str, Any]) -> dict[str, Any]:
        known = {"spin": request["duration_ns"], "empty": 0}
        return {
            name: {
                "samples_us": [(ns / 1e3) * (1 + self.timer_error) + FLOOR_US] * request["samples"],
                "marks_ns": [[1_000, 1_000 + ns]] * request["samples"],
                "queue_full": self.queue_full,
            }
            for name, ns in known.items()
        }

    def _gaps(self, request: dict[str, Any]) -> dict[str, Any]:
        gap = 0.0 if self.gapless else 60.0
        return {"samples_us": [request["duration_ns"] / 1e3 + FLOOR_US + gap] * request["samples"]}

    def _unwarmed(self, request: dict[str, Any]) -> dict[str, Any]:
        self.arm = request
        return {"samples_us": [3e5, *[self._true_us() + 20] * (request["samples"] - 1)]}

    def _disturbed(self, request: dict[str, Any]) -> dict[str, Any]:
        us, every = self._true_us() * (1 + self.drifts), request["every"]
        return {"samples_us": [us + 1e3 * (i % every == every - 1) for i in range(request["samples"])]}


def proofs(**broken: Any) -> dict[str, Proof]:
    """By name; ``broken`` is the candidate's where it begins with ``candidate_``, else everybody's."""
    own = {k.removeprefix("candidate_"): v for k, v in broken.items() if k.startswith("candidate_")}
    everybody = {k: v for k, v in broken.items() if not k.startswith("candidate_")}
    workers = {name: FakeWorker(name, **everybody, **(own if name == "candidate" else {})) for name in proving.ARMS}
    subject = proving.Subject(asks=workers, read=None, plan=PLAN)
    return {proof.name: proof for proof in proving.prove(subject, lambda _: None)}


def unfit(**broken: Any) -> set[str]:
    return {name for name, proof in proofs(**broken).items() if not proof.fit}


PLANTED = {f"planted {extra} % in {name}" for extra in (1, 2, 5) for name in ("stream", "fma")}
SPINS = {"spin of 20.0 us", "spin of 100.0 us", "spin of 1 ms", "spin of 10 ms"}


def test_a_sound_instrument_is_fit_and_every_trap_is_shown() -> None:
    found = proofs()
    assert all(proof.fit for proof in found.values()), [p for p in found.values() if not p.fit]
    traps = {"launch gaps", "first call included", "timing the launch only", "warm L2", "mean instead of median"}
    assert set(found) == {
        *SPINS, *PLANTED, "A/A stream", "A/A fma", "ceilings", *(f"trap: {trap}" for trap in traps),
    }  # fmt: skip
    assert found["spin of 1 ms"].figures["error"] == pytest.approx(0, abs=1e-9)
    assert found["trap: first call included"].figures["without_us"] > 1e4
    assert found["trap: warm L2"].figures["ratio"] == pytest.approx(0.6, rel=0.01)
    assert "0.0548 times" in found["trap: timing the launch only"].found
    assert found["trap: mean instead of median"].figures["ratio"] == pytest.approx(1 + 50 / 150, rel=0.01)


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ({"timer_error": 0.012}, SPINS),
        ({"candidate_offset": 0.02}, {"A/A stream", "A/A fma"}),
        ({"candidate_blind": True}, PLANTED),
        ({"gapless": True}, {"trap: launch gaps"}),
        ({"clean_l2": True}, {"trap: warm L2"}),
        ({"drifts": 0.03}, {"trap: mean instead of median"}),
        ({"broken_op": "unwarmed"}, {"trap: first call included"}),
        ({"broken_op": "ceilings"}, {"ceilings"}),
        ({"candidate_broken_op": "arm_open"}, {"A/A stream", "A/A fma", *PLANTED}),
    ],
)
def test_what_is_broken_is_what_fails(broken: dict[str, Any], names: set[str]) -> None:
    assert unfit(**broken) == names


def test_a_queue_that_ran_empty_is_not_fit() -> None:
    found = proofs(queue_full=False)
    assert not found["spin of 1 ms"].fit
    assert "ran empty" in found["spin of 1 ms"].found
    assert not any(found[name].fit for name in PLANTED)


def test_the_timer_may_be_off_by_less_than_a_per_cent() -> None:
    assert not SPINS & unfit(timer_error=0.008)


def test_the_short_form_asks_for_the_ceilings_only_where_they_are_not_known() -> None:
    worker = FakeWorker("baseline")
    found = proving.short(worker)
    assert [proof.name for proof in found] == ["spin of 20.0 us", "spin of 100.0 us", "spin of 1 ms", "ceilings"]
    assert worker.asked == ["spin"] * 3 + ["ceilings"]
    assert proving.short(worker, {"copy_gb_s": 1.0, "matmul_bf16_tflop_s": 2.0})[-1].found.startswith("copy 1 GB/s")
    assert worker.asked.count("ceilings") == 1
    dead = proving.short(FakeWorker("baseline", broken_op="spin"))
    assert "SIGSEGV" in dead[0].found


def gpu(index: int) -> Gpu:
    return Gpu(
        index=index, uuid=f"GPU-{index}abc-def", name="H200", capability=(9, 0), memory_bytes=1, driver="580",
        largest_sm_mhz=None, power_limit_w=None,
    )  # fmt: skip


def test_a_gpu_is_chosen_by_index_or_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [gpu(0), gpu(1)]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert chosen(gpus, None) == gpus
    assert chosen(gpus, "1") == chosen(gpus, "GPU-1abc") == [gpus[1]]
    with pytest.raises(UsageError, match="no GPU 'G'"):
        chosen(gpus, "G")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UsageError):
        chosen(gpus, "1")


def test_workers_answer_what_the_traps_ask(workshop: Workshop) -> None:
    cell = {"path": str(proving.CASES), "case": "planted_fma", "params": {"n": 2048, "steps": 2, "block": 256}}
    with Client(workshop.environment("3.6.0").interpreter, "gpu", main=FAKE_GPU) as ask:
        raw = ask("unwarmed", **cell, samples=3)
        assert raw["outcome"] == "passed", raw
        assert len(raw["samples_us"]) == 3
        assert ask("disturbed", every=2, samples=4)["reason"].endswith("no arm is open")
        assert ask("arm_open", **cell, places=1)["outcome"] == "passed"
        held = ask("disturbed", every=2, samples=4)
        assert held["outcome"] == "passed", held
        assert len(held["samples_us"]) == 4
