"""The main job end to end, on real releases: what it finds, what it leaves alone, what it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import duckdb
import junitparser
import pandas as pd
import pytest
from conftest import ROOT, Project, Workshop

from matrix.errors import ExitCode

KERNELS = ROOT / "kernels"


@pytest.fixture(scope="module")
def reduction(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Fact F6's run: a TMA reduction and its pointer twin, 3.5.1 against 3.6.0."""
    for version in ("3.5.1", "3.6.0"):
        workshop.environment(version)
    root = tmp_path_factory.mktemp("reduction")
    (root / ".matrix").mkdir()
    (root / ".matrix" / "environments").symlink_to(workshop.root / ".matrix" / "environments")
    project = Project(root)
    done = project.matrix(*reduction_arguments())
    assert done.returncode == ExitCode.REGRESSED, done.stdout + done.stderr
    return project


def reduction_arguments() -> tuple[str, ...]:
    return ("run", "--baseline", "3.5.1", "--candidate", "3.6.0", "--targets", "sm_90,sm_100", "--stages",
            "import,compile", "--no-builtin", "--kernels", str(KERNELS / "column_max.py"))  # fmt: skip


def test_the_tma_reduction_is_one_finding_on_both_targets_and_its_twin_is_silent(reduction: Project) -> None:
    verdicts = pd.read_parquet(reduction.latest / "verdicts.parquet")
    flagged = verdicts[verdicts.verdict.isin(["regressed", "code_risk", "mixed"])]
    assert set(flagged.case) == {"column_max_tma"}
    assert set(flagged.target) == {"sm_90", "sm_100"}
    assert len(set(flagged.finding_id)) == 1
    evidence = pd.read_parquet(reduction.latest / "evidence.parquet")
    fp16 = evidence[(evidence.case == "column_max_tma") & evidence.params.str.contains("fp16,block_m=16")]
    by_version = fp16.groupby("triton_version")[["barriers", "shuffles"]].max()
    assert by_version.loc["3.5.1"].tolist() == [5, 0]
    assert by_version.loc["3.6.0"].tolist() == [10, 16]
    assert "barriers 5 to 10" in flagged.iloc[0].change
    assert "shuffles 0 to 16" in flagged.iloc[0].change


def test_an_unchanged_run_redoes_nothing(reduction: Project) -> None:
    before = pd.read_parquet(reduction.latest / "cells.parquet")
    done = reduction.matrix(*reduction_arguments(), "--json", TRITON_DEFAULT_FP_FUSION="0")
    assert done.returncode == ExitCode.REGRESSED
    # What steers Triton in the caller's shell reaches no environment, and that is said.
    assert "kept out of every environment: TRITON_DEFAULT_FP_FUSION; " in done.stderr
    assert json.loads((reduction.latest / "run.json").read_text())["variables_kept_out"] == ["TRITON_DEFAULT_FP_FUSION"]
    assert "Set in the shell, kept out" in (reduction.latest / "report.html").read_text()
    told = json.loads(done.stdout)
    after = pd.read_parquet(reduction.latest / "cells.parquet")
    assert after[after.stage == "compile"].cached.all()
    assert not before[before.stage == "compile"].cached.any()
    assert {row["verdict"] for row in told["verdicts"]} >= {"code_risk", "changed"}


def test_a_ci_s_files_lie_beside_the_tables(reduction: Project) -> None:
    tests = junitparser.JUnitXml.fromfile(str(reduction.latest / "junit.xml"))
    verdicts = pd.read_parquet(reduction.latest / "verdicts.parquet")
    assert tests.failures == verdicts.verdict.isin(["regressed", "code_risk", "mixed"]).sum() > 0
    assert "column\\_max\\_tma" in (reduction.latest / "summary.md").read_text()


WAIVERS = """
[[waivers]]
cells = ["*/column_max_tma:*"]
stages = ["compile"]
reason = "the pointer twin replaces it"
owner = "kernels"
link = "triton#9703"
expires = 2999-12-31

[[waivers]]
cells = ["*/sm_90/?", "*/sm_100/?", "*/cpu/?"]
reasons = ["stage_not_judged"]
reason = "measured elsewhere"
owner = "kernels"
link = "triton#9703"
expires = 2999-12-31
"""


def test_a_sign_off_wants_every_cell_judged_or_waived(reduction: Project) -> None:
    sign_off = (*reduction_arguments(), "--profile", "signoff")
    done = reduction.matrix(*sign_off)
    assert done.returncode == ExitCode.REGRESSED
    assert "a stage without a verdict, where every cell is wanted" in done.stdout
    path = reduction.write("waivers.toml", WAIVERS)
    done = reduction.matrix(*sign_off, "--waivers", str(path), "--json")
    assert done.returncode == ExitCode.CLEAN, done.stdout
    told = json.loads(done.stdout)["verdicts"]
    assert {row["verdict"] for row in told if row["waived"]} == {"code_risk", "incomplete"}
    meta = json.loads((reduction.latest / "run.json").read_text())
    assert meta["request"]["profile"] == "signoff"
    assert [waiver["reason"] for waiver in meta["waivers"]] == ["the pointer twin replaces it", "measured elsewhere"]
    page = (reduction.latest / "signoff.html").read_text()
    assert "Nothing regressed." in page
    assert "the pointer twin replaces it" in page
    assert reduction.matrix("verify", str(reduction.latest)).returncode == ExitCode.CLEAN
    assert reduction.matrix("report", str(reduction.latest)).returncode == ExitCode.CLEAN
    assert reduction.matrix("verify", str(reduction.latest)).returncode == ExitCode.CLEAN
    path.write_text(WAIVERS.replace("2999", "2025"))
    done = reduction.matrix(*sign_off, "--waivers", str(path))
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.count("expired on 2025-12-31") == 2


def test_a_hypothesis_is_written_before_a_run_and_filled_by_it(reduction: Project) -> None:
    sentence = "because TMA reductions changed, changing Triton to 3.6.0 should double barriers without spills"
    done = reduction.matrix("hypothesis", sentence, "--cases", "column_max*:*fp16,block_m=16*")
    assert "double barriers (barriers)" in done.stdout, done.stderr
    assert reduction.matrix(*reduction_arguments()).returncode == ExitCode.REGRESSED
    rows = pd.read_parquet(reduction.latest / "ledger.parquet")
    assert rows.kind.tolist()[0] == "hypothesis"
    filled = rows[rows.kind == "result"]
    assert set(filled.run_id) == {reduction.latest.resolve().name}
    by_case = filled.assign(case=filled.workload.str.extract(r"/(column_max\w+):")[0]).groupby("case")
    # The pointer twin shows that it is not the release alone; values are not checked by a run that only compiles.
    assert set(by_case.get_group("column_max_tma").verdict) == {"undecided"}
    assert set(by_case.get_group("column_max_tma").reason) == {"values not checked"}
    assert set(by_case.get_group("column_max_pointer").verdict) == {"refuted"}
    assert json.loads(by_case.get_group("column_max_tma").counters.iloc[0])["barriers"] == [5.0, 10.0]
    assert "undecided" in reduction.matrix("hypothesis").stdout
    assert reduction.matrix("verify", str(reduction.latest)).returncode == ExitCode.CLEAN


def test_runs_add_up_to_a_history(reduction: Project) -> None:
    nights = reduction.root / "nights"
    for _ in range(2):
        assert reduction.matrix(*reduction_arguments(), "--history", str(nights)).returncode == ExitCode.REGRESSED
    latest = reduction.latest.resolve()
    added = reduction.matrix("trend", "--history", str(nights), "--add", str(latest))
    assert "was there already" in added.stderr
    rows = duckdb.sql(f"SELECT * FROM '{nights}/*/*.parquet'").df()
    assert len(set(rows.run_id)) == 2
    assert not rows.duplicated(["run_id", "candidate", "target", "case", "params", "stage"]).any()
    assert rows[rows.stage == "compile"].estimate_us.notna().any()
    page = (latest / "report.html").read_text()
    assert "over 2 nights" in page
    assert reduction.matrix("verify", str(latest)).returncode == ExitCode.CLEAN


def test_globs_that_match_nothing_are_a_usage_error(reduction: Project) -> None:
    latest = reduction.latest.resolve()
    done = reduction.matrix(*reduction_arguments(), "--cases", "column_maxi*")
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert "no case matches 'column_maxi*'" in done.stderr
    assert "did you mean column_max" in done.stderr
    done = reduction.matrix(*reduction_arguments(), "--cases", "column_max*,no_such")
    assert done.stderr.startswith("error: no case matches 'no_such'\nhint: cases are: column_max_pointer, column_max")
    assert reduction.latest.resolve() == latest
    done = reduction.matrix(*reduction_arguments(), "--cases", "")
    assert done.returncode == ExitCode.USAGE
    assert "leave the option out to mean all" in done.stderr


def test_no_match_says_which_files_could_not_be_imported_and_why(project: Project) -> None:
    project.write("cases/one.py", "import no_such_module\n")
    project.write("cases/two.py", "import sys\nraise ValueError('broken on purpose')\n")
    project.write("cases/three.py", "import no_such_module\n")
    project.write("cases/four.py", "import theirs.ops\n")
    project.write("src/theirs/ops.py", "import os\n\nBLOCK = os.environ['NO_SUCH_VARIABLE']\n")
    project.write("matrix.toml", 'pythonpath = ["src"]\n')
    done = project.matrix("run", "--no-builtin", "--kernels", "cases", "--cases", "softmax*", "--targets", "sm_90")
    assert done.returncode == ExitCode.USAGE
    assert "no case matches 'softmax*'" in done.stderr
    assert "one.py, three.py: ModuleNotFoundError: No module named 'no_such_module'" in done.stderr
    assert 'if it is a package: REQUIRES = ["no_such_module"] in the case file' in done.stderr
    assert "two.py: ValueError: broken on purpose at two.py:2" in done.stderr
    assert "four.py: KeyError: 'NO_SUCH_VARIABLE' at theirs/ops.py:3" in done.stderr


def test_show_takes_the_globs_that_run_takes(reduction: Project) -> None:
    done = reduction.matrix("show", "column_max_tma*", "--json")
    assert {row["case"] for row in json.loads(done.stdout)["cells"]} == {"column_max_tma"}


def test_every_artifact_is_there_once_and_any_zstd_reads_it(reduction: Project) -> None:
    evidence = pd.read_parquet(reduction.latest / "evidence.parquet")
    named = {digest for text in evidence.artifacts for digest in json.loads(text).values()}
    files = {path.name.removesuffix(".zst") for path in (reduction.latest / "artifacts").iterdir()}
    assert named == files
    ptx = json.loads(evidence.artifacts.iloc[0])["ptx"]
    if tool := shutil.which("zstd"):
        text = subprocess.run(
            [tool, "-dc", str(reduction.latest / "artifacts" / f"{ptx}.zst")], capture_output=True, check=True
        ).stdout
        assert b".version" in text


def test_the_readme_s_queries_answer(reduction: Project) -> None:
    tables = {name: str(reduction.latest / f"{name}.parquet") for name in ("verdicts", "evidence")}
    worst = duckdb.sql(
        f"SELECT candidate, target, \"case\", reason_code, change FROM '{tables['verdicts']}' "
        "WHERE verdict IN ('regressed', 'code_risk', 'mixed') ORDER BY severity DESC"
    ).fetchall()
    assert worst
    seconds = duckdb.sql(
        'SELECT "case", target, triton_version, round(sum(seconds_total), 2) AS seconds '
        f"FROM '{tables['evidence']}' GROUP BY ALL ORDER BY seconds DESC LIMIT 10"
    ).fetchall()
    assert len(seconds) == 8


def test_show_tells_all_of_a_cell_its_code_included(reduction: Project) -> None:
    cell = "triton3.6.0-torch2.11.0/sm_90/column_max_tma:*block_m=16*"
    text = reduction.matrix("show", cell).stdout
    for word in ("passed", "code_risk", "registers", "shuffles", "ptxas", "signature"):
        assert word in text
    assert "BAR.SYNC" in reduction.matrix("show", cell, "--code", "sass").stdout
    memory = reduction.matrix("show", cell, "--memory").stdout
    assert "bound by shared" in memory and "shared wavefronts a block: 1196 (236 would do)" in memory
    assert json.loads(reduction.matrix("show", cell, "--json").stdout)["kernels"]
    missing = reduction.matrix("show", "no/such/column_max_tma")
    assert missing.returncode == ExitCode.USAGE
    assert "column_max_tma" in missing.stderr


def test_plan_says_what_would_run_and_what_not(reduction: Project) -> None:
    arguments = [argument for argument in reduction_arguments() if argument != "run"]
    plan = json.loads(reduction.matrix("plan", *arguments, "--json").stdout)
    counted = {(row["stage"], row["environment"]): row["cells"] for row in plan["stages"]}
    assert counted["compile", "triton3.6.0-torch2.11.0"] == len(plan["cells"]) / 2
    assert {"timing", "interpret"} <= {row["what"] for row in plan["not_run"]}


def test_of_an_environment_that_is_not_built_no_number_of_cells_is_told(project: Project) -> None:
    plan = json.loads(project.matrix("plan", "--candidate", "triton3.9.0-torch2.14.0", "--json").stdout)
    unbuilt = [row for row in plan["stages"] if row["environment"] == "triton3.9.0-torch2.14.0"]
    assert {row["stage"]: row["cells"] for row in unbuilt} == {
        "import": plan["case_files"], "compile": None, "interpret": None}  # fmt: skip


def test_the_catalogue_runs_where_it_is_named(project: Project) -> None:
    everything = json.loads(project.matrix("plan", "--json").stdout)["case_files"]
    named = json.loads(project.matrix("plan", "--cases", "regression*", "--json").stdout)["case_files"]
    assert everything == len([*KERNELS.glob("*.py"), *(KERNELS / "front_ends").glob("*.py")])
    unread = 1  # transformer_block.py takes cases' kernels from other files: its own text does not tell all
    assert named == len([*(KERNELS / "regressions").glob("*.py")]) + unread


def test_compare_judges_recorded_cells_the_other_way_round(reduction: Project) -> None:
    done = reduction.matrix("compare", str(reduction.latest), "--baseline", "3.6.0", "--candidate", "3.5.1", "--json")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert "improved" in {row["verdict"] for row in json.loads(done.stdout)["verdicts"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--baseline", "9.9.9"), ["9.9.9"]),
        (("run", "--targets", "sm_91"), ["sm_91", "sm_90"]),
        (("run", "--stages", "timings"), ["timings", "compile"]),
        (("run", "--kernels", "nowhere"), ["nowhere"]),
        (("run", "--baseline", "3.9.0", "--candidate", "3.9.0"), ["both"]),
        (("run", "--bogus"), ["--bogus"]),
        (("report",), ["no finished run"]),
        (("show", "x"), ["no finished run"]),
    ],
)
def test_bad_usage_is_one_clear_error(project: Project, arguments: tuple[str, ...], words: list[str]) -> None:
    done = project.matrix(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.slow
def test_a_wheel_does_the_same_in_any_folder(workshop: Workshop, tmp_path: Path) -> None:
    """Build the wheel, install it somewhere, and run it with nothing of the clone in sight."""
    from matrix.provisioning import uv

    for version in ("3.8.0", "3.9.0"):
        workshop.environment(version)
    uv.run(["build", "--wheel", "--out-dir", str(tmp_path / "dist"), str(ROOT)])
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    uv.run(["venv", "--python", sys.executable, str(tmp_path / "venv")])
    python = tmp_path / "venv" / "bin" / "python"
    uv.run(["pip", "install", "--python", str(python), str(wheel)])
    folder = tmp_path / "elsewhere"
    (folder / ".matrix").mkdir(parents=True)
    (folder / ".matrix" / "environments").symlink_to(workshop.root / ".matrix" / "environments")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("MATRIX_", "PYTHON"))}
    done = subprocess.run(
        [str(python.parent / "triton-matrix"), "run", "--cases", "vector_add", "--targets", "sm_90"],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr
    assert (folder / ".matrix" / "runs" / "latest" / "report.html").is_file()


def test_the_source_distribution_holds_what_a_build_needs(tmp_path: Path) -> None:
    from matrix.provisioning import uv

    uv.run(["build", "--sdist", "--out-dir", str(tmp_path), str(ROOT)])
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    assert {"noxfile.py", "kernels/softmax.py", "reports/report.html", "matrix/data/environments.toml"} <= names


def test_targets_on_request_compile_and_are_left_out_by_default(project: Project) -> None:
    """Wider targets: NVIDIA's have evidence; AMD's have an outcome, and their code is said not to be read."""
    wider = ("sm_86", "sm_89", "sm_103", "sm_121", "gfx942", "gfx950")
    arguments = (
        "run",
        "--no-builtin",
        "--kernels",
        str(KERNELS / "vector_add.py"),
        "--stages",
        "import,compile",
        "--json",
    )
    done = project.matrix(*arguments, "--targets", ",".join(wider))
    assert done.returncode == ExitCode.CLEAN, done.stderr
    verdicts = pd.DataFrame(json.loads(done.stdout)["verdicts"])
    compiled = verdicts[verdicts.stage == "compile"]
    assert set(compiled.target) == set(wider)
    unread = compiled[compiled.target.str.startswith("gfx")]
    assert set(unread.reason_code) == {"code_unread"}
    evidence = pd.read_parquet(project.latest / "evidence.parquet")
    assert set(evidence.target) == set(wider[:4])
    assert (evidence.registers > 0).all()
    planned = json.loads(project.matrix("plan", "--json").stdout)
    assert planned["targets"] == ["sm_80", "sm_90", "sm_100", "sm_120"]


def test_availability_of_wider_targets_is_known_of_the_releases(project: Project) -> None:
    arguments = ("run", "--no-builtin", "--kernels", str(KERNELS / "vector_add.py"), "--stages", "import,compile",
                 "--baseline", "3.6.0", "--candidate", "3.4.0", "--targets", "sm_121,gfx942", "--json")  # fmt: skip
    verdicts = pd.DataFrame(json.loads(project.matrix(*arguments).stdout)["verdicts"])
    compiled = verdicts[verdicts.stage == "compile"]
    assert set(compiled.target) == {"sm_121", "gfx942"}
    assert set(compiled.verdict) == {"known"}


def test_of_a_kernel_that_tunes_itself_the_first_configurations_may_do(project: Project) -> None:
    arguments = ("run", "--no-builtin", "--kernels", str(KERNELS / "matmul_autotuned.py"), "--stages", "import,compile",
                 "--targets", "sm_90", "--json")  # fmt: skip
    counted = {}
    for wanted in ("first", "1", "all"):
        done = project.matrix(*arguments, "--configs", wanted)
        assert done.returncode in {ExitCode.CLEAN, ExitCode.REGRESSED}, done.stderr
        verdicts = pd.DataFrame(json.loads(done.stdout)["verdicts"])
        counted[wanted] = len(set(verdicts[verdicts.stage == "compile"].params))
        told = [entry["what"] for entry in json.loads((project.latest / "run.json").read_text())["not_run"]]
        assert ("further autotune configurations" in told) == (wanted != "all")
    assert counted == {"first": 1, "1": 1, "all": 2}
    assert project.matrix(*arguments, "--configs", "0").returncode == ExitCode.USAGE
