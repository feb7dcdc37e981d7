from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from wheels import make_wheel

from matrix.errors import EnvironmentBuildError, ExitCode
from matrix.provisioning import builds, locks, manifests, overlays, uv
from matrix.provisioning.builds import Builder
from matrix.provisioning.locks import LockedPackage, drift
from matrix.settings import config
from matrix.settings.environments import CpuTorch, Environment, child_environment, kept_out

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CPU = CpuTorch(torch="torch==2.0")


@pytest.fixture
def wheels(tmp_path):
    """A folder of wheels: Tritons 1.0 and 2.0, a torch that pins 2.0, its CPU build, NumPy and a library."""
    folder = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        make_wheel(folder, "triton", version)
    make_wheel(folder, "torch", "2.0", "triton==2.0")
    make_wheel(folder, "torch", "2.0+cpu", "filelock")
    make_wheel(folder, "filelock", "3.0")
    make_wheel(folder, "numpy", "1.0")
    make_wheel(folder, "library", "5.0", "triton", "torch", "helper")
    make_wheel(folder, "helper", "1.0")
    return folder


@pytest.fixture
def pair(wheels):
    return Environment(
        id="pair",
        triton="triton==2.0",
        torch="torch==2.0",
        python=PYTHON,
        tags=("stock",),
        find_links=(str(wheels),),
        offline=True,
        requires=("numpy",),
    )


@pytest.fixture
def builder(tmp_path):
    return Builder(root=tmp_path, cpu=CPU, gpu=False)


def versions(built) -> dict[str, str]:
    return {each.name: each.version for each in built.packages}


def imported(built, *modules: str) -> list[str]:
    """The versions that the environment's own interpreter imports, isolated as a worker is."""
    code = "; ".join(f"import {module}; print({module}.__version__)" for module in modules)
    command = [str(built.interpreter), "-I", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_host_without_gpu_gets_the_cpu_build_and_says_so(builder, pair):
    other = replace(pair, torch="torch==3.0")
    built = builder.build(other)
    assert imported(built, "triton", "torch", "numpy") == ["2.0", "2.0+cpu", "1.0"]
    assert built.label == "torch 2.0 (CPU) stands in for 3.0"
    assert (built.triton, built.torch_build, built.stock) == ("2.0", "2.0+cpu", True)
    assert built.python.startswith(PYTHON)
    assert all(len(each.sha256) == 64 for each in built.packages)
    assert built.version("filelock") == "3.0"


def test_a_host_with_a_gpu_gets_the_pairs_own_torch(builder, pair):
    built = replace(builder, gpu=True).build(pair)
    assert imported(built, "triton", "torch") == ["2.0", "2.0"]
    assert (built.label, built.stock) == ("torch 2.0", True)


def test_a_forced_pair_has_the_triton_that_was_asked_for(builder, pair):
    built = replace(builder, gpu=True).build(replace(pair, triton="triton==1.0"))
    assert imported(built, "triton", "torch") == ["1.0", "2.0"]
    assert (built.label, built.stock) == ("Triton 1.0 forced onto torch 2.0", False)


def test_what_is_built_is_found_again_at_once(builder, pair, monkeypatch):
    built = builder.build(pair)
    monkeypatch.setattr(subprocess, "Popen", None)  # nobody is asked
    started = time.perf_counter()
    found = builder.ready(pair)
    assert time.perf_counter() - started < 0.05
    assert found == built == builder.build(pair)


def test_what_another_environment_has_compiled_is_not_compiled_again(builder, pair):
    def numpy(built):
        return next(built.interpreter.parent.parent.rglob("numpy/__init__.py"))

    first = builder.build(pair)
    subprocess.run([first.interpreter, "-m", "compileall", "-q", numpy(first).parent], check=True)
    second = builder.build(replace(pair, id="another"))
    # Only where uv links what it installs is it known to be the same.
    assert bool(list(numpy(second).parent.rglob("*.pyc"))) == numpy(first).samefile(numpy(second))


def test_variables_are_part_of_the_identity(builder, pair):
    built = builder.build(pair)
    steered = builder.build(replace(pair, variables={"TRITON_X": "1"}))
    assert steered.digest != built.digest
    assert steered.packages == built.packages
    again = replace(builder, root=builder.root / "elsewhere").build(pair)
    assert again.digest == built.digest


def test_the_lock_stays_when_the_index_moves_on(builder, pair, wheels):
    built = builder.build(pair)
    make_wheel(wheels, "numpy", "1.5")
    assert builder.build(pair) == built
    (built.directory / "manifest.json").unlink()  # the installation is lost, the lock is not
    rebuilt = builder.build(pair)
    assert (rebuilt.version("numpy"), rebuilt.digest, rebuilt.drift) == ("1.0", built.digest, ())
    upgraded = builder.build(pair, upgrade=True)
    assert upgraded.version("numpy") == "1.5"
    assert upgraded.drift == ("numpy 1.0 -> 1.5",)
    assert upgraded.digest != built.digest
    assert imported(upgraded, "numpy") == ["1.5"]


def test_requirements_of_cases_enter_the_lock_and_move_nothing_else(builder, pair, wheels):
    first = builder.build(pair)
    make_wheel(wheels, "numpy", "1.5")
    more = builder.build(replace(pair, requires=(*pair.requires, "library")))
    assert versions(more) == versions(first) | {"library": "5.0", "helper": "1.0"}
    assert more.drift == ("helper 1.0 added", "library 5.0 added")
    # What is not wanted any more may have pinned others: it goes, and what it held back comes as in a new folder.
    assert builder.ready(pair) is None
    assert versions(builder.build(pair)) == versions(first) | {"numpy": "1.5"}


def test_another_pair_under_the_same_id_is_resolved_anew(builder, pair):
    builder.build(pair)
    changed = replace(pair, triton="triton==1.0")
    assert builder.ready(changed) is None
    assert builder.build(changed).drift == ("triton 2.0 -> 1.0",)


def test_a_wheel_file_is_noticed_when_it_is_built_anew(builder, pair, tmp_path):
    wheel = make_wheel(tmp_path / "mine", "triton", "7.0", body="__version__ = 'first'\n")
    mine = replace(pair, triton=f"triton @ {wheel.as_uri()}")
    first = builder.build(mine)
    assert imported(first, "triton") == ["first"]
    make_wheel(tmp_path / "mine", "triton", "7.0", body="__version__ = 'the second'\n")
    assert builder.ready(mine) is None
    second = builder.build(mine)
    assert imported(second, "triton") == ["the", "second"]
    assert second.digest != first.digest
    assert "another file" in second.drift[0]


def test_a_git_revision_is_an_environment(builder, pair, tmp_path):
    backend = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "triton-3.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("triton/__init__.py", "__version__ = 'from git'\\n")
        info = "triton-3.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: triton\\nVersion: 3.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
    source = tmp_path / "source"
    source.mkdir()
    (source / "backend.py").write_text(backend)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(source)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    built = builder.build(replace(pair, triton=f"triton @ git+{source.as_uri()}@{commit}"))
    assert imported(built, "triton") == ["from", "git"]
    assert next(each.sha256 for each in built.packages if each.name == "triton") == commit


def test_an_index_without_dates_is_used_as_of_today_and_says_so(builder, pair, wheels, tmp_path):
    simple = tmp_path / "index" / "simple"
    for wheel in wheels.glob("*.whl"):
        folder = simple / wheel.name.partition("-")[0]
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "index.html").open("a") as page:
            page.write(f'<a href="{wheel.as_uri()}">{wheel.name}</a><br>\n')
    dated = replace(pair, find_links=(), index=simple.as_uri(), offline=False, as_of="2024-09-04")
    built = builder.build(dated)
    assert built.notes == ("the index gives no upload dates: resolved as of today, not of 2024-09-04",)
    assert builder.ready(dated) == built


def test_a_projects_uv_settings_stay_out(builder, pair, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.uv]\nconstraint-dependencies = ["triton<2"]\n'
    )
    assert builder.build(pair).triton == "2.0"


# What goes wrong: one error that names the environment and says what to do, and the others still build.


def failure(builder, environment) -> EnvironmentBuildError:
    with pytest.raises(EnvironmentBuildError) as caught:
        builder.build(environment)
    error = caught.value
    assert error.environment == environment.id
    assert f"environment {environment.id}: " in str(error)
    assert error.hint
    assert error.exit_code == ExitCode.INCOMPLETE
    assert builder.ready(environment) is None
    assert not list(manifests.folder_of(builder.root, environment).glob("venv-*"))
    return error


def test_no_such_version(builder, pair):
    error = failure(builder, replace(pair, id="wrong", triton="triton==9.9"))
    assert "its requirements cannot be met" in str(error)
    assert "no version of triton==9.9" in str(error)
    assert builder.build(pair)


def test_offline_and_not_there(builder, pair):
    error = failure(builder, replace(pair, find_links=(), requires=("no-such-package-of-ours",)))
    assert "find_links" in error.hint


def test_no_index(builder, pair, monkeypatch):
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setattr(locks, "_backend_answers", False)
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    error = failure(builder, replace(pair, find_links=(), offline=False, index="http://127.0.0.1:9/simple"))
    assert "a package index cannot be reached" in str(error)
    assert "PIP_INDEX_URL" in error.hint


def test_no_such_python(builder, pair):
    error = failure(builder, replace(pair, python="9.99", python_exact=True))
    assert "Python" in str(error)


def test_the_running_python_stands_in_where_the_declared_one_is_not_to_be_had(builder, pair):
    built = builder.build(replace(pair, python="9.99"))
    assert built.notes == (f"Python {PYTHON} stands in for 9.99, which is neither here nor to be had",)
    assert built.python.startswith(PYTHON)


def test_no_uv(builder, pair, monkeypatch):
    def missing() -> str:
        raise uv.UvError("uv is not installed")

    monkeypatch.setattr(uv, "find_uv", missing)
    assert failure(builder, pair).hint == "pip install uv"


def test_a_full_disk(builder, pair, monkeypatch, tmp_path):
    """uv says so in mid-install, as it does when its cache or the environment's disk is full."""
    real = uv.find_uv()
    script = tmp_path / "uv"
    script.write_text(
        f'#!/bin/sh\n[ "$2" = sync ] || exec "{real}" "$@"\n'
        'echo "error: Failed to install: triton-2.0-py3-none-any.whl (triton==2.0)" >&2\n'
        'echo "  cause: failed to write to file: No space left on device (os error 28)" >&2\nexit 2\n'
    )
    script.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(uv, "find_uv", lambda: str(script))
        error = failure(builder, pair)
    assert "the disk is full" in str(error)
    assert "UV_CACHE_DIR" in error.hint
    assert builder.build(pair)


def test_a_full_disk_under_our_own_files(builder, pair, monkeypatch):
    def full(path: Path, data: bytes, *, durable: bool) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(builds, "replace_file", full)
    assert "the disk is full" in str(failure(builder, pair))


def test_a_folder_that_cannot_be_written(builder, pair):
    file = builder.root / "file"
    file.touch()
    with pytest.raises(EnvironmentBuildError, match="environment pair: its folder cannot be written") as caught:
        replace(builder, root=file).build(pair)
    assert caught.value.hint


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_install_leaves_nothing_that_is_used(builder, pair, tmp_path, sign):
    """The child hangs in mid-install; it and the uv that it started end, and the next build starts over."""
    script = tmp_path / "uv"
    script.write_text(
        f'#!/bin/sh\n[ "$2" = sync ] || exec "{uv.find_uv()}" "$@"\necho $$ > "{tmp_path}/pid"\nexec sleep 600\n'
    )
    script.chmod(0o755)
    code = f"""
from pathlib import Path
from matrix.provisioning import uv
from matrix.provisioning.builds import Builder
from matrix.settings.environments import CpuTorch, Environment
uv.find_uv = lambda: {str(script)!r}
Builder(root=Path({str(builder.root)!r}), cpu=CpuTorch(torch={CPU.torch!r}), gpu=False).build({pair!r})
"""
    root = str(Path(builds.__file__).parents[2])
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, stderr=subprocess.DEVNULL
    )
    pid = tmp_path / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    child.send_signal(sign)
    child.wait(timeout=30)
    wait_for(lambda: not alive(int(pid.read_text())))
    assert builder.ready(pair) is None
    assert imported(builder.build(pair), "triton") == ["2.0"]


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_damaged_manifest_means_to_build_again(builder, pair):
    built = builder.build(pair)
    for content in ("", "{", "[]", '{"schema": 99}', '{"schema": 1}'):
        (built.directory / "manifest.json").write_text(content)
        assert builder.ready(pair) is None
    assert builder.build(pair).digest == built.digest


def test_a_damaged_lock_and_a_lost_interpreter_are_made_again(builder, pair):
    built = builder.build(pair)
    built.interpreter.unlink()
    built.lock.write_text("not a lock")
    (built.directory / "pylock.spec.json").write_text("{}")
    assert builder.ready(pair) is None
    assert builder.build(pair).digest == built.digest


def test_two_processes_do_not_build_at_once(builder, pair, tmp_path):
    code = f"""
from pathlib import Path
from matrix.provisioning.builds import Builder
from matrix.settings.environments import CpuTorch, Environment
told = []
Builder(
    root=Path({str(builder.root)!r}), cpu=CpuTorch(torch={CPU.torch!r}), gpu=False, progress=told.append
).build({pair!r})
print(sum("installing" in each for each in told))
"""
    root = str(Path(builds.__file__).parents[2])
    command = [sys.executable, "-c", code]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root})
        for _ in range(3)
    ]
    assert sorted(child.communicate(timeout=120)[0].strip() for child in children) == ["0", "0", "1"]


# The host's own torch.


@pytest.fixture
def host(tmp_path, wheels, monkeypatch):
    """A container of somebody else's, with torch 2.0, Triton 2.0 and NumPy 1.0 in it."""
    folder = tmp_path / "container"
    uv.run(["venv", "--python", PYTHON, str(folder)])
    python = folder / "bin" / "python"
    arguments = [
        "pip",
        "install",
        "--python",
        str(python),
        "--offline",
        "--no-index",
        "--find-links",
        str(wheels),
    ]
    uv.run([*arguments, "torch===2.0", "triton==2.0", "numpy"])
    monkeypatch.setenv(overlays.HOST_PYTHON, str(python))
    return python


def test_an_overlay_lays_another_triton_in_front_of_the_hosts(builder, wheels, host):
    overlay = Environment(id="over", triton="triton==1.0", inherit="host", find_links=(str(wheels),), offline=True)
    built = builder.build(overlay)
    assert imported(built, "triton", "torch", "numpy") == ["1.0", "2.0", "1.0"]
    assert versions(built) == {"triton": "1.0", "torch": "2.0", "numpy": "1.0"}
    assert (built.triton, built.torch_build, built.stock) == ("1.0", "2.0", False)
    assert built.label == "Triton 1.0 in front of the host's torch 2.0, which has Triton 2.0"
    assert builder.ready(overlay) == built


def test_the_hosts_own_triton_is_used_as_it_is(builder, host):
    own = Environment(id="host", triton="triton==2.0", inherit="host", offline=True)
    built = builder.build(own)
    assert imported(built, "triton", "torch") == ["2.0", "2.0"]
    assert built.stock
    assert not built.lock.exists()
    assert versions(built) == {"triton": "2.0", "torch": "2.0", "numpy": "1.0"}
    assert builder.build(replace(own, id="any", triton="triton")).triton == "2.0"


def test_an_overlay_adds_what_cases_require_and_the_host_lacks(builder, wheels, host):
    overlay = Environment(
        id="over",
        triton="triton==1.0",
        inherit=str(host),
        find_links=(str(wheels),),
        offline=True,
        requires=("numpy", "library"),
    )
    built = builder.build(overlay)
    assert imported(built, "triton", "torch", "library", "helper") == ["1.0", "2.0", "5.0", "1.0"]
    own = {each.name for each in locks.parse(built.lock.read_text())}
    assert own == {"triton", "library", "helper"}


def test_an_overlay_is_built_again_when_the_host_changes(builder, wheels, host):
    own = Environment(id="host", triton="triton", inherit="host", offline=True)
    first = builder.build(own)
    uv.run(
        [
            "pip",
            "install",
            "--python",
            str(host),
            "--offline",
            "--no-index",
            "-f",
            str(wheels),
            "triton==1.0",
            "--no-deps",
        ],
    )
    assert builder.ready(own) is None
    second = builder.build(own)
    assert (second.triton, second.stock) == ("1.0", False)
    assert second.digest != first.digest


def test_no_torch_on_the_host(builder, tmp_path, monkeypatch):
    monkeypatch.setenv(overlays.HOST_PYTHON, str(tmp_path / "nowhere"))
    error = failure(builder, Environment(id="over", triton="triton==1.0", inherit="host"))
    assert "no interpreter of the host has torch" in str(error)
    assert overlays.HOST_PYTHON in error.hint


# The PyTorch CPU index.


def test_the_cpu_index_is_asked_once_and_then_left_alone(builder, pair, monkeypatch):
    asked = []
    real = uv.run

    def run(arguments, **options):
        if "--torch-backend" in arguments:
            asked.append(options["variables"]["UV_HTTP_RETRIES"])
            raise uv.UvError("error sending request")
        return real(arguments, **options)

    monkeypatch.setattr(uv, "run", run)
    monkeypatch.setattr(locks, "_backend_answers", None)
    online = replace(pair, offline=False, index="file:///no-such-index/simple")
    assert builder.build(online).torch_build == "2.0+cpu"
    assert builder.build(replace(online, id="second")).torch_build == "2.0+cpu"
    assert asked == ["0"]


def test_the_cpu_index_is_used_where_it_answers(builder, pair, monkeypatch):
    asked = []
    real = uv.run

    def run(arguments, **options):
        at = list(arguments).index("--torch-backend") if "--torch-backend" in arguments else None
        if at is None:
            return real(arguments, **options)
        asked.append(arguments[at + 1])
        return real([*arguments[:at], *arguments[at + 2 :]])

    monkeypatch.setattr(uv, "run", run)
    monkeypatch.setattr(locks, "_backend_answers", None)
    online = replace(pair, offline=False, index="file:///no-such-index/simple")
    for name in ("first", "second"):
        builder.build(replace(online, id=name))
    assert asked == ["cpu", "cpu"]  # once for each environment's torch, and never for its Triton


# Small parts.


@pytest.mark.parametrize("cached", [True, False])
def test_wheels_that_the_cache_holds_are_not_asked_for_again(monkeypatch, tmp_path, cached):
    asked = []

    def run(arguments):
        asked.append("--offline" in arguments)
        if "--offline" in arguments and not cached:
            raise uv.UvError("Network connectivity is disabled")

    monkeypatch.setattr(uv, "run", run)
    locks.install(tmp_path / "pylock.toml", tmp_path / "python", offline=False)
    assert asked == ([True] if cached else [True, False])
    if not cached:
        with pytest.raises(uv.UvError):
            locks.install(tmp_path / "pylock.toml", tmp_path / "python", offline=True)


def test_drift():
    old = [LockedPackage(name="a", version="1", sha256="x"), LockedPackage(name="b", version="1")]
    new = [LockedPackage(name="a", version="1", sha256="y"), LockedPackage(name="c", version="1")]
    assert drift(old, new) == ["a 1: another file (x -> y)", "b 1 removed", "c 1 added"]
    assert drift(new, new) == []


def test_nothing_that_steers_triton_leaks_in():
    caller = {
        "PATH": "/bin",
        "HOME": "/home",
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTHONPATH": "/x",
        "PYTHONUTF8": "1",
        "TRITON_INTERPRET": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/x",
        "PYTORCH_CUDA_ALLOC_CONF": "x",
        "MLIR_ENABLE_DUMP": "1",
        "DISABLE_PTXAS_OPT": "1",
        "DISABLE_UPDATES": "1",
        "PTXAS_OPTIONS": "-v",
        "VIRTUAL_ENV": "/x",
    }
    environment = Environment(id="x", triton="triton", variables={"TRITON_DEFAULT_FP_FUSION": "0"})
    assert kept_out(caller) == ["DISABLE_PTXAS_OPT", "MLIR_ENABLE_DUMP", "PTXAS_OPTIONS", "PYTORCH_CUDA_ALLOC_CONF",
                                "TORCHINDUCTOR_CACHE_DIR", "TRITON_INTERPRET"]  # fmt: skip
    assert child_environment(environment, caller) == {
        "PATH": "/bin",
        "HOME": "/home",
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTHONUTF8": "1",
        "DISABLE_UPDATES": "1",
        "PYTHONNOUSERSITE": "1",
        "TRITON_DEFAULT_FP_FUSION": "0",
    }


def test_uvs_own_settings_that_would_move_versions_stay_out():
    kept = uv.environment({"UV_EXCLUDE_NEWER": "2020-01-01", "UV_OVERRIDE": "x", "UV_CACHE_DIR": "/c", "HOME": "/h"})
    assert kept["UV_CACHE_DIR"] == "/c"
    assert not {"UV_EXCLUDE_NEWER", "UV_OVERRIDE"} & kept.keys()


@pytest.mark.parametrize(("visible", "expected"), [("", False), ("-1", False)])
def test_a_hidden_gpu_is_no_gpu(monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert manifests.gpu_present() is expected


# The real thing: one release, from the real index.


@pytest.mark.slow
def test_a_stock_pair_is_built_as_it_was_on_its_day(tmp_path):
    """Triton 3.5.1 with the NumPy of its day, and PyTorch's CPU build."""
    configuration = config.load(tmp_path)
    environment = configuration.environment("3.5.1")
    built = Builder(root=tmp_path, cpu=configuration.cpu, gpu=False).build(environment)
    triton, torch, numpy = imported(built, "triton", "torch", "numpy")
    assert triton == "3.5.1"
    assert torch.partition("+")[0] == "2.13.0"
    assert numpy.startswith("2.3.")
    assert built.stock
    assert "stands in for 2.9.1" in built.label
    written = json.loads((built.directory / "manifest.json").read_text())
    assert written["schema"] == manifests.SCHEMA
