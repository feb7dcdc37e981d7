"""Rows of the GPU stages: an ordinary timed cell and what a test changes about it, and cells timed on an H200."""

from __future__ import annotations

import dataclasses
import functools
import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judged import BASELINE, CANDIDATE, cell
from scipy.special import stdtrit

from matrix.gpus.timing_records import against
from matrix.judging.statistics import StoppingRule
from matrix.model import format_params
from matrix.records import ArmRecord, DimensionRecord, Role, RoundRecord, Tuning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GPU = "NVIDIA H200"
UUID = "GPU-ab231fe6-3275-fe46-8e60-7a2d390594c2"
METHOD = "interleaved rounds, paired log-ratios, Student over blocks"
LOOKS, ALPHA, BLOCKS = 6, 0.005, 6
_EMPTY = {"str": "", "int": 0, "float": 0.0}
_RECORDED = Path(__file__).parent / "data" / "timing" / "h200.json.xz"


def arm(role: Role = Role.CANDIDATE, **given: object) -> ArmRecord:
    """100 us a call in an arm that differs from the baseline's by nothing."""
    environment = CANDIDATE if role is Role.CANDIDATE else BASELINE
    row = cell(environment, stage="timing")
    values: dict[str, object] = {f.name: _EMPTY.get(str(f.type)) for f in dataclasses.fields(ArmRecord)}
    values |= {name: getattr(row, name) for name in ("run_id", "host", "environment", "triton_version")}
    values |= {name: getattr(row, name) for name in ("torch_version", "target", "case", "params", "cell_id")}
    values |= {"gpu": GPU, "gpu_uuid": UUID, "role": role, "baseline": BASELINE, "tuning": Tuning.NONE}
    values |= {"configurations": {}, "problems": [], "warnings": [], "cache": "cold", "calls": 1, "samples": 240}
    values |= {"rounds": 24, "blocks": BLOCKS, "median_us": 100.0, "p20_us": 99.0, "p80_us": 101.0}
    values |= {"clock_mhz": 1980.0, "clock_cv": 0.001, "launch_us": 20.0, "margin": 0.005, "alpha": ALPHA}
    optional = ("standard_error", "cycles_error", "looks", "method_version", "parameters")
    values |= dict.fromkeys(optional)
    values |= {"gpu_us": 2e5, "wall_seconds": 4.0, "stopped": "decided", "method": METHOD}
    if role is not Role.BASELINE:
        values |= {"decision": "same", "decision_in_time": "same", "decision_in_cycles": "same"}
        values |= {"ratio": 1.0, "ratio_low": 0.999, "ratio_high": 1.001, "cycles_ratio": 1.0}
        values |= {"smallest_detectable": 0.009, **errors(0.001)}
    values |= given
    return ArmRecord(**values)  # type: ignore[arg-type]


def arms(
    candidate: dict[str, Any] | None = None, baseline: dict[str, Any] | None = None, **both: Any
) -> list[ArmRecord]:
    """A cell's three arms. ``candidate`` and ``baseline`` change one, every other keyword all of them."""
    return [
        arm(Role.BASELINE, **both, **(baseline or {})),
        arm(Role.CANDIDATE, **both, **(candidate or {})),
        arm(Role.CONTROL, **both),
    ]


def errors(spread: float) -> dict[str, Any]:
    """The standard errors, in time and in cycles, of an interval that reaches so far on a logarithmic scale."""
    error = spread / float(stdtrit(BLOCKS - 1, 1 - ALPHA / LOOKS / 2))
    return {"standard_error": error, "cycles_error": error, "looks": LOOKS}


def ratio(estimate: float, decision: str, *, spread: float = 0.002) -> dict[str, Any]:
    """The fields of an arm whose time is ``estimate`` times the baseline's, by that decision."""
    low, high = estimate * (1 - spread), estimate * (1 + spread)
    return {
        "decision": decision,
        "decision_in_time": decision,
        "decision_in_cycles": decision,
        "ratio": estimate,
        "ratio_low": low,
        "ratio_high": high,
        "cycles_ratio": estimate,
        "median_us": 100.0 * estimate,
        **errors(spread),
    }


def dimension(environment: str, name: str = "values", outcome: str = "passed", **given: object) -> DimensionRecord:
    row = cell(environment, stage="correctness")
    values: dict[str, object] = {
        **{
            name: getattr(row, name)
            for name in ("run_id", "host", "environment", "target", "case", "params", "cell_id")
        },
        "gpu_uuid": UUID,
        "dimension": name,
        "outcome": outcome,
        "reason": "",
    }
    if name == "values":
        values |= {"worst": 0.2, "largest_error": 1e-4, "budget": "4 x plain torch's error"}
        values |= {"output_digest": "out", "reference_digest": "ref"}
    return DimensionRecord(**{**values, **given})  # type: ignore[arg-type]


@functools.cache
def _recording() -> dict[str, Any]:
    return json.loads(lzma.decompress(_RECORDED.read_bytes()))  # type: ignore[no-any-return]


def recorded(baseline: str, candidate: str, **given: object) -> tuple[list[ArmRecord], list[RoundRecord]]:
    """Nine cells of an H200 with 3.5.1 as the baseline and 3.6.0 as the candidate.

    There 3.6.0 was the baseline: ratios are turned round, and its control is scaled to the new baseline.
    """
    timed = [_timed(entry, baseline, candidate, given) for entry in _recording()["cells"]]
    return [one for rows, _ in timed for one in rows], [one for _, rows in timed for one in rows]


_TURNED = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}
_BYTES = {"fp16": 2, "bf16": 2}


def _timed(
    entry: dict[str, Any], baseline: str, candidate: str, given: dict[str, object]
) -> tuple[list[ArmRecord], list[RoundRecord]]:
    names = {Role.BASELINE: "3.5.1", Role.CANDIDATE: "host", Role.CONTROL: "control"}
    rows, rounds = [], []
    for role, name in names.items():
        environment = candidate if role is Role.CANDIDATE else baseline
        shared = {"params": format_params(entry["params"]), "case": entry["case"], "environment": environment}
        shared["cell_id"] = f"{environment}/sm_90/{entry['case']}:{shared['params']}"
        *spread, samples = entry["spread"][name]
        # The control ran 3.6.0: what it was off by is carried over to the new baseline.
        scale = entry["spread"]["3.5.1"][0] / entry["spread"]["host"][0] if role is Role.CONTROL else 1.0
        median, p20, p80 = (scale * us for us in spread)
        moved = _bytes_moved(entry)
        rate = moved / median * 1e-3 if moved else None
        figures: dict[str, Any] = {
            "median_us": median, "p20_us": p20, "p80_us": p80, "samples": samples,
            "rounds": sum(map(len, entry["log_ratios"]["control"])), "blocks": len(entry["log_ratios"]["control"]),
            "bytes_moved": moved, "gb_s": rate, "share_of_ceiling": rate and rate / _recording()["gpu"]["copy_gb_s"],
            "ceiling": "copy" if rate else "", "competitor": "torch 2.11.0", "competitor_us": 1.2 * median,
            "calls": entry["calls"], "gpu_us": entry["gpu_us"], "wall_seconds": entry["wall_seconds"],
            "stopped": entry["stopped"], "margin": entry["margin"],
        }  # fmt: skip
        against = _against(entry, role)
        rows.append(arm(role, baseline=baseline, **{**shared, **figures, **against, **given}))
        scaled = [[b, r, c, [scale * us for us in samples]] for b, r, c, samples in entry["arms"][name]]
        rounds += list(_rounds(scaled, role, environment, str(shared["cell_id"])))
    return rows, rounds


def _bytes_moved(entry: dict[str, Any]) -> float | None:
    p = entry["params"]
    if entry["case"].startswith("column_max"):
        return float(p["rows"] * p["cols"] * (_BYTES[p["dtype"]] + 4 / p["block_m"]))
    return 4.0 * p["n"] if entry["case"] == "dropout" else None


def _against(entry: dict[str, Any], role: Role) -> dict[str, Any]:
    """What an arm's row says against the baseline's."""
    if role is Role.BASELINE:
        return {}
    name, sign = ("control", 1.0) if role is Role.CONTROL else ("3.5.1", -1.0)
    rule = StoppingRule()
    blocks = [[sign * x for x in block] for block in entry["log_ratios"][name]]
    cycles = [[sign * x for x in block] for block in entry["log_ratios_cycles"][name]]
    figures = against(blocks, cycles, entry["log_ratios"]["control"], rule)
    candidate = role is Role.CANDIDATE
    said = {key: _TURNED[entry[key]] if candidate else "" for key in ("decision", "in_time", "in_cycles")}
    return {
        "decision": said["decision"],
        "decision_in_time": said["in_time"],
        "decision_in_cycles": said["in_cycles"],
        "ratio": figures["ratio"],
        "ratio_low": figures["low"],
        "ratio_high": figures["high"],
        "cycles_ratio": figures["cycles"],
        "smallest_detectable": figures["smallest"],
        "standard_error": figures["error"],
        "cycles_error": figures["cycles_error"],
        "looks": len(rule.looks),
    }


def _rounds(raw: Sequence[Sequence[Any]], role: Role, environment: str, cell_id: str) -> Iterator[RoundRecord]:
    for block, number, clock, samples in raw:
        yield RoundRecord(
            run_id="r",
            cell_id=cell_id,
            environment=environment,
            role=role,
            tuning=Tuning.NONE,
            block=block,
            round=number,
            cache="cold",
            samples_us=samples,
            queue_full=True,
            clock_mhz=clock,
            busy_us=sum(samples),
            wall_us=22_000.0,
            worker_us=21_000.0,
            sm_mhz=1980,
            memory_mhz=3201,
            power_w=412.5,
            temperature_c=51,
            reasons=["sw_power_cap"],
            throttled_ns={"sw_power_cap": 12_000_000, "hw_thermal_slowdown": 0},
        )
