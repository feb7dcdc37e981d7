"""The order of a measurement, its decisions and its validity, with arms made of numbers and a fake GPU.

Nothing here shows that a time is right: that only a GPU can (``triton-matrix doctor --gpu``).
"""

from __future__ import annotations

import itertools
import time
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fake_host
import numpy as np
import pytest
from worker_client import FAKE_GPU, Client

from matrix.baton import Baton
from matrix.errors import UsageError
from matrix.gpus.arms import COLD, WARM, ArmFailed, Estimate, Opened, Relay, Round, Rounds, Slab, Turn, WorkerArm
from matrix.gpus.nvml import Nvml, Reading
from matrix.gpus.timing import TimingPlan, measure
from matrix.judging.statistics import Decision, StoppingRule, block_values
from matrix.model import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Workshop

# Fewer turns than by default: what they show does not hang on how many there are.
PATIENCE_S = 20.0
PLAN = TimingPlan(rule=StoppingRule(looks=(6, 9, 12)), rounds_per_block=2, round_us=16_000.0)


@dataclass
class FakeArm:
    """An arm made of numbers: samples scatter around ``true_us``, placements and clocks as told."""

    name: str
    true_us: float
    log: list[str] = field(default_factory=list)
    place_spread: float = 0.0015
    noise: float = 0.003
    clock_mhz: float | None = 1980.0
    queue_full: bool = True
    drift: Any = None  # shared by the arms of one GPU: the round's own factor
    seed: int = 0
    fails: Outcome | None = None
    fails_at: int = -1  # the turn
    lying: dict[int, Any] = field(default_factory=dict)  # by the first place of a layout: what each place costs
    is_open: bool = False

    capturable: bool = True
    enqueue_us: float = 20.0
    places: int = 6
    meanwhile: Any = None
    slab: Slab | None = None
    borrows: bool = True
    offsets: tuple[int, ...] = (0, 4096)
    offsets_ahead: tuple[int, ...] = (64, 4160)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, *self.name.encode()])

    def lend(self) -> Slab | None:
        return self.slab

    def borrow(self, slab: Slab) -> bool:
        self.log.append(f"borrow {self.name} {slab.name}")
        return self.borrows

    def open(self, places: int, share: float, *, shared: bool) -> Opened:
        if self.fails:
            raise ArmFailed(self.fails, "as told", arm=self.name)
        assert 0 < share < 1
        count = min(places, self.places)
        self.is_open = True
        return Opened(places=count, capturable=self.capturable)

    def place(self, first: int, places: int, *, shared: bool, fill: bool) -> tuple[int, ...]:
        where = f" {self.offsets} {fill}" if shared else ""
        self.log.append(f"place {self.name} {first}{where}")
        self._lie(first, places, shared=shared)
        return self.offsets if shared else ()

    def fill(self, first: int) -> None:
        self.log.append(f"fill {self.name} {first}")

    def _lie(self, first: int, places: int, *, shared: bool) -> None:
        # Of a place that is shared, what its position costs is the same in every arm.
        random = np.random.default_rng(first) if shared else self.random
        self.lying[first] = random.normal(0, self.place_spread, places)

    def estimate(self) -> Estimate:
        call = {COLD: self.true_us, WARM: self.true_us}
        return Estimate(call_us=call)

    def rounds(self, turn: Turn, relay: Relay) -> Rounds:
        assert self.is_open
        found: dict[int, Round] = {}
        with Baton(relay.baton) as baton:
            for number in relay.turns:
                if not baton.wait(number, PATIENCE_S):
                    return Rounds(rounds=found)
                if self.fails_at == number:
                    raise ArmFailed(Outcome.CRASH, "as told", arm=self.name)
                found[number] = self._round(turn, relay.first)
                baton.pass_on(number)
        if relay.ahead is None:
            return Rounds(rounds=found)
        self.log.append(f"ahead {self.name} {relay.ahead}")
        self._lie(relay.ahead, relay.places, shared=True)
        return Rounds(rounds=found, offsets=self.offsets_ahead)

    def _round(self, turn: Turn, first: int) -> Round:
        began = time.perf_counter()
        self.log.append(f"{turn.cache} {self.name} {turn.samples}x{turn.calls} {turn.replayed}")
        if self.meanwhile:
            self.meanwhile()
        factor = next(self.drift) if self.drift else 1.0
        at = np.resize(self.lying[first], turn.samples)
        scatter = np.exp(at + self.random.normal(0, self.noise, turn.samples)) * factor
        return Round(
            samples_us=tuple(self.true_us * scatter),
            queue_full=self.queue_full,
            clock_mhz=self.clock_mhz,
            busy_us=(self.true_us + 40.0) * turn.samples * turn.calls,
            began=began,
            ended=time.perf_counter(),
        )

    def overhead(self, calls: int) -> tuple[float, ...]:
        return (self.enqueue_us,) * calls


def trio(ratio: float = 1.0, true_us: float = 60.0, **candidate: Any) -> tuple[FakeArm, FakeArm, FakeArm]:
    log: list[str] = []
    return (
        FakeArm("baseline", true_us, log),
        FakeArm("candidate", true_us * ratio, log, **candidate),
        FakeArm("control", true_us, log),
    )


def run(arms: tuple[FakeArm, FakeArm, FakeArm], plan: TimingPlan = PLAN, **more: Any) -> Any:
    return measure(arms[0], [arms[1]], arms[2], plan=plan, **more)


SLAB = Slab(name="s", path="/there", size=1 << 30)


def lending(arms: tuple[FakeArm, FakeArm, FakeArm]) -> tuple[FakeArm, FakeArm, FakeArm]:
    arms[0].slab = SLAB
    return arms


def test_arms_measure_in_memory_that_they_share_where_they_can() -> None:
    arms = lending(trio())
    record = run(arms)
    assert record.shared
    assert [line for line in arms[0].log if line.startswith("borrow")] == ["borrow candidate s", "borrow control s"]
    placed = [line for line in arms[0].log if line.startswith("place")]
    assert sorted(placed) == [
        "place baseline 0 (0, 4096) True",
        "place candidate 0 (0, 4096) False",
        "place control 0 (0, 4096) False",
    ]


def test_the_next_layout_is_prepared_ahead_and_filled_by_one_arm_for_all() -> None:
    arms = lending(trio())
    record = run(arms)
    blocks = len({r.block for r in record.rounds})
    ahead = [line for line in arms[0].log if line.startswith("ahead")]
    assert sorted(ahead[:3]) == ["ahead baseline 6", "ahead candidate 6", "ahead control 6"]
    assert len(ahead) == 3 * blocks
    filled = [line for line in arms[0].log if line.startswith("fill")]
    assert filled == [f"fill baseline {6 * block}" for block in range(1, blocks)]


def test_layouts_that_were_prepared_apart_are_laid_out_again() -> None:
    arms = lending(trio())
    arms[2].offsets_ahead = (64, 8192)
    assert run(arms).shared
    placed = [line.split()[2] for line in arms[0].log if line.startswith("place candidate")]
    assert placed[:3] == ["0", "6", "12"]
    assert not [line for line in arms[0].log if line.startswith("fill")]


def test_an_arm_that_fails_in_its_turn_ends_the_others_waiting() -> None:
    arms = trio(fails_at=4)
    began = time.monotonic()
    with pytest.raises(ArmFailed, match="as told") as failure:
        run(arms)
    assert failure.value.arm == "candidate"
    assert time.monotonic() - began < PATIENCE_S


def test_what_a_shared_place_costs_cancels_out() -> None:
    apart = [run(trio(place_spread=0.02, noise=0.001, seed=n)).log_ratios("candidate") for n in range(5)]
    arms = [lending(trio(place_spread=0.02, noise=0.001, seed=n)) for n in range(5)]
    for arm in [arm for trio_ in arms for arm in trio_]:
        arm.place_spread = 0.02
    shared = [run(trio_).log_ratios("candidate") for trio_ in arms]
    spread = lambda found: np.std([value for each in found for value in block_values(each)])  # noqa: E731
    assert spread(shared) < spread(apart) / 3


@pytest.mark.parametrize("case", ["one cannot map it", "inputs lie elsewhere", "not all of it fits", "none to lend"])
def test_nothing_is_shared_unless_every_arm_shares_all_of_it(case: str) -> None:
    arms = trio() if case == "none to lend" else lending(trio())
    match case:
        case "one cannot map it":
            arms[1].borrows = False
        case "inputs lie elsewhere":
            arms[1].offsets = (0, 8192)
        case "not all of it fits":
            arms[1].offsets = ()
    record = run(arms)
    assert not record.shared
    last = [line for line in arms[0].log if line.startswith("place")][-3:]
    assert sorted(line.split()[1] for line in last) == ["baseline", "candidate", "control"]
    assert all("(" not in line for line in last)


def test_every_arm_comes_as_often_at_every_place_of_the_order() -> None:
    arms = trio(place_spread=0.02)  # so noisy that every look is taken
    run(arms)
    order = [line.split()[1] for line in arms[0].log if line.startswith("cold")]
    turns = [order[first : first + 3] for first in range(0, len(order), 3)]
    assert len(turns) % 12 == 0
    for place in range(3):
        assert {name: [turn[place] for turn in turns].count(name) for name in order} == dict.fromkeys(
            order, len(turns) // 3
        )


def test_rounds_are_interleaved_and_their_order_reversed_every_other_round() -> None:
    arms = trio()
    run(arms)
    rounds = [line.split()[1] for line in arms[0].log if line.startswith("cold")]
    assert rounds[:6] == ["baseline", "candidate", "control", "control", "candidate", "baseline"]


def test_every_block_has_places_of_its_own() -> None:
    arms = trio(enqueue_us=150.0)
    arms[1].places = 4  # what the memory of one arm allows
    record = run(arms)
    placed = [line.split()[2:] for line in arms[0].log if line.startswith("place baseline")]
    blocks = len({r.block for r in record.rounds})
    assert placed == [[str(4 * block)] for block in range(blocks)]


def test_calls_are_replayed_where_those_of_every_arm_can_be_captured() -> None:
    assert run(trio()).replayed
    assert not run(trio(capturable=False)).replayed


@pytest.mark.parametrize(
    ("ratio", "decision"),
    [(1.0, Decision.SAME), (1.03, Decision.SLOWER), (0.95, Decision.FASTER), (3.1, Decision.SLOWER)],
)
def test_a_candidate_is_decided(ratio: float, decision: Decision) -> None:
    record = run(trio(ratio))
    assert record.decisions["candidate"] == decision
    assert record.stopped == "decided"


def test_raw_samples_are_kept_by_arm_round_and_cache() -> None:
    record = run(trio())
    cold, warm = (record.samples_us("candidate", cache) for cache in (COLD, WARM))
    assert len(cold) == sum(len(r.samples_us) for r in record.rounds if r.arm == "candidate" and r.cache == COLD)
    assert len(warm) == PLAN.warm_rounds * min(record.samples_per_round, PLAN.warm_samples)
    blocks = [len(block) for block in record.log_ratios("candidate")]
    assert blocks == [PLAN.rounds_per_block] * len({r.block for r in record.rounds})


def test_what_drifts_for_all_arms_alike_does_not_count() -> None:
    """Clocks fall by a fifth over the measurement: every round is hit, and the pairs are not."""
    steps = iter(np.repeat(np.linspace(1.0, 1.2, 1000), 3))
    arms = trio(1.03)
    for arm in arms:
        arm.drift = steps
    assert run(arms).decisions["candidate"] == Decision.SLOWER


def test_short_kernels_are_batched_and_judged_warm() -> None:
    record = run(trio(true_us=4.0))
    assert (record.judged_cache, record.calls) == (WARM, 25)
    assert record.decisions["candidate"] == Decision.SAME


def test_all_arms_are_batched_alike_where_one_is_short() -> None:
    arms = trio(0.8, true_us=11.0)
    run(arms)
    assert {line.split("x")[1].split()[0] for line in arms[0].log if "x" in line} == {"12"}


def test_a_kernel_too_short_for_any_batch_is_said_to_be() -> None:
    with pytest.raises(ArmFailed) as failure:
        run(trio(true_us=0.2))
    assert failure.value.outcome == Outcome.TOO_SHORT


def test_long_kernels_get_fewer_samples_so_that_the_first_look_is_within_the_budget() -> None:
    record = run(trio(1.1, true_us=5000.0))
    assert len({r.block for r in record.rounds}) == PLAN.rule.looks[0]
    assert record.samples_per_round < PLAN.samples
    assert record.decisions["candidate"] == Decision.SLOWER
    assert record.arms_us < 2e6  # the warm rounds included


@pytest.mark.parametrize(("true_us", "launches"), [(50.0, 30), (300.0, 12), (1000.0, 0)])
def test_launches_are_timed_where_there_is_time_for_enough(true_us: float, launches: int) -> None:
    record = run(trio(true_us=true_us))
    assert {len(times) for times in record.launch_us.values()} == {launches}


def test_the_end_of_the_budget_is_the_last_look() -> None:
    arms = trio(1.5, true_us=50_000.0)
    record = run(arms)
    assert record.stopped == "decided"
    assert len({r.block for r in record.rounds}) < PLAN.rule.looks[0]
    undecided = run(trio(1.006, true_us=50_000.0))
    assert (undecided.stopped, undecided.decisions["candidate"]) == ("budget", Decision.UNDECIDED)


def test_an_arm_that_cannot_be_opened_ends_the_cell_with_its_outcome_and_says_whose() -> None:
    arms = trio(fails=Outcome.OUT_OF_MEMORY)
    with pytest.raises(ArmFailed, match="out_of_memory") as failure:
        run(arms)
    assert failure.value.arm == "candidate"


def test_a_difference_in_time_alone_is_not_called() -> None:
    """The candidate's GPU ran at a lower clock: slower in time, the same in cycles."""
    record = run(trio(1.05, clock_mhz=1980.0 / 1.05))
    assert record.decisions_in_time["candidate"] == Decision.SLOWER
    assert record.decisions_in_cycles["candidate"] == Decision.SAME
    assert record.decisions["candidate"] == Decision.UNDECIDED
    assert "SM clock" in record.warnings["candidate"][0]
    assert record.problems["candidate"] == ()


def test_a_slower_arm_at_a_higher_clock_is_slower() -> None:
    """Held up by memory, the candidate draws less power: in cycles it is slower still."""
    record = run(trio(2.5, clock_mhz=1980.0 * 1.076))
    assert record.decisions["candidate"] == Decision.SLOWER
    assert record.problems["candidate"] == ()


def test_lower_clocks_under_the_power_cap_are_the_kernel_s_own_doing() -> None:
    arms = trio(1.05, clock_mhz=1980.0 / 1.05)
    total = {"sw_power_cap": 0}

    def capped() -> None:
        total["sw_power_cap"] += 1_000_000
        time.sleep(0.01)

    for arm in arms:
        arm.meanwhile = capped
    plan = TimingPlan(rule=StoppingRule(looks=(6,)), rounds_per_block=1, warm_rounds=1)
    record = run(arms, plan=plan, read=lambda: reading(dict(total)))
    assert record.problems["candidate"] == ()
    assert any("sw_power_cap" in said for said in record.warnings["candidate"])
    assert record.decisions["candidate"] == Decision.UNDECIDED  # slower in time, the same in cycles


def test_without_clocks_time_decides() -> None:
    arms = trio(1.05)
    for arm in arms:
        arm.clock_mhz = None
    assert run(arms).decisions["candidate"] == Decision.SLOWER


def test_a_queue_that_ran_empty_is_a_problem_of_that_arm() -> None:
    record = run(trio(queue_full=False))
    assert "queue ran empty" in record.problems["candidate"][0]
    assert record.problems["baseline"] == ()


def test_throttling_in_one_arm_only_is_a_problem() -> None:
    arms = trio()
    total = {"hw_thermal_slowdown": 0}

    def throttle() -> None:
        total["hw_thermal_slowdown"] += 1_000_000
        time.sleep(0.02)

    for arm in arms:
        arm.meanwhile = lambda: time.sleep(0.02)
    arms[1].meanwhile = throttle
    plan = TimingPlan(rule=StoppingRule(looks=(6,)), rounds_per_block=1, warm_rounds=1)
    record = run(arms, plan=plan, read=lambda: reading(dict(total)))
    assert "hw_thermal_slowdown in one arm" in record.problems["candidate"][0]
    assert "hw_thermal_slowdown" in record.warnings["candidate"][0]
    assert record.problems["control"] == ()
    assert all(len(r.readings) == 2 for r in record.rounds)


def test_a_coarse_counter_s_step_in_one_arm_s_turn_is_chance() -> None:
    arms = trio()
    total, turns = {"hw_thermal_slowdown": 0}, itertools.count()

    def throttle() -> None:
        total["hw_thermal_slowdown"] += 100_000_000 if next(turns) == 2 else 0
        time.sleep(0.02)

    for arm in arms:
        arm.meanwhile = lambda: time.sleep(0.02)
    arms[1].meanwhile = throttle
    plan = TimingPlan(rule=StoppingRule(looks=(6,)), rounds_per_block=1, warm_rounds=1)
    record = run(arms, plan=plan, read=lambda: reading(dict(total)))
    assert record.problems["candidate"] == ()
    assert record.warnings["candidate"] == ("hw_thermal_slowdown for 100.0 ms",)


def reading(throttled: dict[str, int]) -> Reading:
    return Reading(sm_mhz=1980, memory_mhz=3201, power_w=400.0, temperature_c=50, reasons=(), throttled_ns=throttled)


def test_planted_differences_are_found_and_none_is_made_up() -> None:
    """The issue's figures, on arms as noisy as those of an H200."""
    found = {0.0: 0, 2.0: 0}
    for extra in found:
        for cell in range(40):
            arms = trio(1 + extra / 100)
            for arm in arms:
                arm.seed = cell
                arm.__post_init__()
            found[extra] += run(arms).decisions["candidate"] in (Decision.SLOWER, Decision.FASTER)
    assert found[2.0] >= 38
    assert found[0.0] == 0


@pytest.fixture(scope="module")
def interpreter(workshop: Workshop) -> Path:
    return workshop.environment("triton3.9.0-torch2.15.0").interpreter


def test_a_worker_serves_an_arm(interpreter: Path, tmp_path: Path) -> None:
    """The requests and replies of the real worker; its fake GPU's figures mean nothing."""
    path = tmp_path / "case.py"
    path.write_text(ARM_CASE)
    cell: dict[str, Any] = {"path": str(path), "case": "copy", "params": {"n": 64}}
    with Client(interpreter, "gpu", main=FAKE_GPU) as worker, Client(interpreter, "gpu", main=FAKE_GPU) as second:
        arms = [WorkerArm("one", worker.ask, **cell), WorkerArm("other", second.ask, **cell)]
        record = measure(arms[0], [arms[1]], plan=fake_host.PLAN)
        assert worker("device")["name"] == "fake"
        with pytest.raises(ArmFailed, match="run_error"):
            WorkerArm("bad", worker.ask, path=str(path), case="raises", params={}).open(1, 0.5, shared=False)
        part = worker("arm_open", path=str(path), case="nothing", params={})
        assert part["outcome"] == "not_launched"
        assert worker("correctness", path=str(path), case="copy", params={"n": 65})["outcome"] == "passed"
    assert record.opened["one"].kernels[0]["name"] == "copy_kernel"
    assert record.opened["one"].places == 2
    assert len(record.rounds) == 2 * 2 * 2 + 2
    assert all(len(r.samples_us) == 10 for r in record.rounds)
    assert len(record.launch_us["other"]) == 2 * fake_host.PLAN.overhead_calls


ARM_CASE = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def copy_kernel(x, out, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * step, mask=i < n), mask=i < n)

def copy(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), BLOCK=64)
    return out

def raises(x):
    raise OSError("no such thing")

def vector(make, p):
    return [make.normal((p.get("n", 8),), "fp32")]

cases = [
    Case(name="copy", run=copy, reference=lambda x: x.clone(), inputs=vector, interpret=[{"n": 64}]),
    Case(name="raises", run=raises, inputs=vector),
    Case(name="nothing", run=lambda x: x, inputs=vector),
]
"""


class FakeNvml(types.SimpleNamespace):
    """As much of ``pynvml`` as is used, with one GPU that knows the older counters only."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_SUCCESS = 1, 2, 0, 0
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL, NVML_PERF_POLICY_BOARD_LIMIT = 0, 1, 3
    nvmlClocksEventReasonSwPowerCap = 4

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__(locked=[], actual=1980, may_lock=True)

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetUUID": b"GPU-1",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=141 << 30),
            "nvmlSystemGetDriverVersion": "580.0",
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetPowerUsage": 412_000,
            "nvmlDeviceGetTemperature": 55,
            "nvmlDeviceGetCurrentClocksEventReasons": 4,
            "nvmlDeviceGetViolationStatus": types.SimpleNamespace(violationTime=7),
        }
        if name in answers:
            return lambda *_: answers[name]
        if name == "nvmlDeviceGetFieldValues":
            return self._unsupported
        raise AttributeError(name)

    def _unsupported(self, *_: Any) -> Any:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetClockInfo(self, _: Any, kind: int) -> int:
        return int(self.actual) if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceSetGpuLockedClocks(self, _: Any, low: int, high: int) -> None:
        if not self.may_lock:
            raise self.NVMLError("insufficient permissions")
        self.locked.append((low, high))

    def nvmlDeviceResetGpuLockedClocks(self, _: Any) -> None:
        self.locked.append("released")


def test_a_gpu_is_read_in_this_process() -> None:
    with Nvml(FakeNvml()) as nvml:
        (gpu,) = nvml.gpus()
        found = nvml.reading(gpu.uuid)
    assert (gpu.uuid, gpu.target, gpu.power_limit_w) == ("GPU-1", "sm_90", 700.0)
    assert (found.sm_mhz, found.memory_mhz, found.power_w, found.reasons) == (1980, 3201, 412.0, ("sw_power_cap",))
    assert found.throttled_ns["sw_power_cap"] == 7


def test_a_clock_lock_is_read_back_and_released_whatever_happens() -> None:
    library = FakeNvml()
    library.actual = 1500
    nvml = Nvml(library)
    nvml.gpus()
    with nvml.locked_clocks("GPU-1", 1500, lambda: None) as actual:
        assert actual == 1500
    assert library.locked == [(1500, 1500), "released"]
    with pytest.raises(ZeroDivisionError), nvml.locked_clocks("GPU-1", 1500, lambda: None):
        raise ZeroDivisionError
    assert library.locked[-1] == "released"


def test_a_clock_lock_that_does_not_hold_is_released_and_said() -> None:
    library = FakeNvml()
    nvml = Nvml(library)
    nvml.gpus()
    library.actual = 1700
    with pytest.raises(UsageError, match="1980 MHz and runs at 1700"), nvml.locked_clocks("GPU-1", 1980, lambda: None):
        pytest.fail("not reached")
    assert library.locked[-1] == "released"


def test_clocks_that_may_not_be_locked_say_what_to_do() -> None:
    library = FakeNvml()
    library.may_lock = False
    nvml = Nvml(library)
    nvml.gpus()
    with pytest.raises(UsageError) as failure, nvml.locked_clocks("GPU-1", 1980, lambda: None):
        pytest.fail("not reached")
    assert "--lock-clocks" in failure.value.hint
