from __future__ import annotations

import re
from pathlib import Path

import pytest

from matrix.errors import ConfigurationError, UsageError
from matrix.settings import config
from matrix.settings.environments import Environment, find, requirement, select
from matrix.settings.tomlfile import TomlFile


@pytest.fixture
def stock(tmp_path):
    return config.load(tmp_path)


def problems(tmp_path, text: str, name: str = "matrix.toml") -> list[str]:
    """What is wrong with a file, each as ``line: rest``."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        config.load(tmp_path)
    return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]


def test_the_data_file_holds_the_stock_pairs(stock):
    pairs = [(each.triton_version, each.torch_version) for each in stock.environments]
    assert pairs == [
        ("3.0.0", "2.4.1"),
        ("3.1.0", "2.5.1"),
        ("3.2.0", "2.6.0"),
        ("3.3.1", "2.7.1"),
        ("3.4.0", "2.8.0"),
        ("3.5.1", "2.9.1"),
        ("3.6.0", "2.10.0"),
        ("3.6.0", "2.11.0"),
        ("3.7.1", "2.12.1"),
        ("3.7.1", "2.13.0"),
        ("3.8.0", "2.14.1"),
        ("3.9.0", "2.15.0"),
    ]
    for each in stock.environments:
        assert each.id == f"triton{each.triton_version}-torch{each.torch_version}"
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", each.as_of)
        assert any(need.startswith("numpy<") for need in each.requires) == (each.triton_version < "3.7")
    assert stock.cpu.torch == "torch==2.13.0"


def test_the_default_run_is_computed_from_the_data(stock):
    assert stock.environment(stock.baseline).id == "triton3.8.0-torch2.14.1"
    assert [stock.environment(name).id for name in stock.candidates] == ["triton3.9.0-torch2.15.0"]


def test_a_newer_release_in_the_users_file_moves_the_default_run(tmp_path):
    (tmp_path / "matrix.toml").write_text(
        '[[environments]]\nid = "new"\ntriton = "3.10.0"\ntorch = "2.16.0"\ntags = ["stock"]\n'
    )
    loaded = config.load(tmp_path)
    assert [loaded.environment(rule).id for rule in (loaded.baseline, *loaded.candidates)] == [
        "triton3.9.0-torch2.15.0",
        "new",
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("3.6.0", "triton3.6.0-torch2.11.0"),
        ("3.7.1", "triton3.7.1-torch2.13.0"),
        ("newest", "triton3.9.0-torch2.15.0"),
        ("triton3.6.0-torch2.10.0", "triton3.6.0-torch2.10.0"),
        ("triton3.6.0-torch2.13.0", "triton3.6.0-torch2.13.0"),
        ("3.9.0@host", "triton3.9.0-host"),
        ("host", "host"),
    ],
)
def test_names(stock, name, meant):
    assert stock.environment(name).id == meant


def test_a_pair_that_is_made_up_takes_after_its_halves(stock):
    pair = stock.environment("triton3.6.0-torch2.13.0")
    assert (pair.triton, pair.torch) == ("triton==3.6.0", "torch==2.13.0")
    assert pair.as_of == "2026-07-08"
    assert "numpy<2.4" in pair.requires


def test_a_wheel_is_an_environment(stock, tmp_path):
    wheel = tmp_path / "triton-3.10.0+mine-cp311-cp311-linux_x86_64.whl"
    with pytest.raises(UsageError, match="there is no wheel"):
        find(stock.environments, str(wheel))
    wheel.touch()
    found = find(stock.environments, str(wheel))
    assert found.id == "triton3.10.0+mine-torch2.15.0"
    assert found.triton == f"triton @ {wheel.as_uri()}"
    assert found.triton_version == "3.10.0+mine"
    # A build of one's own that calls itself a release is not that release, and stays itself where it goes by its id.
    own = tmp_path / "triton-3.9.0-cp311-cp311-linux_x86_64.whl"
    own.write_text("mine")
    known = stock.with_wheels(["3.8.0", own.name], folder=tmp_path)
    (chosen,) = known.select([own.name])
    assert chosen.id.startswith("triton3.9.0-torch2.15.0-") and chosen.triton == f"triton @ {own.as_uri()}"
    assert known.environment(chosen.id) == chosen != known.environment("3.9.0")


def test_an_unknown_name_says_what_there_is(stock):
    with pytest.raises(UsageError, match=r"no environment '3\.9\.1'.*3\.8\.0, 3\.9\.0") as caught:
        stock.environment("3.9.1")
    assert "did you mean 3.9.0?" in caught.value.hint
    with pytest.raises(UsageError, match=r"no environment '3\.5\.0'") as caught:
        stock.environment("3.5.0")
    assert "did you mean 3.5.1 or 3.4.0?" in caught.value.hint
    assert stock.environment("triton3.5.0-torch2.9.1").triton == "triton==3.5.0"
    assert "such as triton3.5.0-torch2.9.1, or declare one in matrix.toml" in caught.value.hint


def test_globs_and_lists_select(stock):
    chosen = [each.id for each in select(stock.environments, ["triton3.6*,3.9.0", "3.9.0"])]
    assert chosen == ["triton3.6.0-torch2.10.0", "triton3.6.0-torch2.11.0", "triton3.9.0-torch2.15.0"]
    with pytest.raises(UsageError, match="no environment matches"):
        select(stock.environments, ["triton4*"])


def test_a_variant_of_a_release_does_not_take_its_short_name(stock):
    variant = Environment(id="fusion", triton="triton==3.9.0", torch="torch==9.9")
    assert find([*stock.environments, variant], "3.9.0").id == "triton3.9.0-torch2.15.0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.9.0", "triton==3.9.0"),
        (">=3.10.0.dev0", "triton>=3.10.0.dev0"),
        ("pytorch-triton==3.6.0", "pytorch-triton==3.6.0"),
        ("git+https://example.com/triton@abc", "triton @ git+https://example.com/triton@abc"),
        ("triton @ git+https://example.com/t@abc", "triton@ git+https://example.com/t@abc"),
        ("./triton-3.9.0-py3-none-any.whl", "triton @ file:///base/triton-3.9.0-py3-none-any.whl"),
        (
            "pytorch_triton-3.9.0-py3-none-any.whl",
            "pytorch-triton @ file:///base/pytorch_triton-3.9.0-py3-none-any.whl",
        ),
        ("../checkout", "triton @ file:///checkout"),
    ],
)
def test_requirements(text, expected):
    found = requirement("triton", text, Path("/base"))
    assert found.replace(" ", "") == expected.replace(" ", "")


def test_the_users_file_adds_replaces_and_selects(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "matrix.toml").write_text(
        """
baseline = "3.8.0"
candidate = ["3.9.0", "nightly"]
targets = "sm_90"
stages = ["compile"]
cases = ["softmax*"]
kernels = ["mine"]
builtin = false

[defaults]
offline = true
find_links = ["wheels"]

[thresholds]
code_ratio = 3

[timeouts]
compile = 60

[[environments]]
id = "nightly"
triton = ">=3.10.0.dev0"
torch = "2.15.0"
extra_indexes = ["https://nightly.example/simple"]
variables = { TRITON_DEFAULT_FP_FUSION = "0" }

[[environments]]
id = "triton3.9.0-torch2.15.0"
triton = "3.9.0"
torch = "2.15.0"
python = "3.12"
as_of = "2026-11-01"
"""
    )
    loaded = config.load(tmp_path)
    nightly = loaded.environment("nightly")
    assert nightly.triton == "triton>=3.10.0.dev0"
    assert nightly.offline
    assert nightly.find_links == (str(tmp_path / "wheels"),)
    assert nightly.variables == {"TRITON_DEFAULT_FP_FUSION": "0"}
    replaced = loaded.environment("triton3.9.0-torch2.15.0")
    assert (replaced.python, replaced.python_exact, replaced.as_of) == ("3.12", True, "2026-11-01")
    assert len(loaded.environments) == 13
    assert (loaded.targets, loaded.stages, loaded.cases) == (("sm_90",), ("compile",), ("softmax*",))
    assert (loaded.kernels, loaded.builtin) == ((tmp_path / "mine",), False)
    assert loaded.thresholds.code_ratio == 3.0
    assert loaded.timeouts_s["compile"] == 60
    assert loaded.timeouts_s["interpret"] == config.TIMEOUTS_S["interpret"]
    assert loaded.cpu.torch == "torch==2.13.0"


def test_pyproject_serves_too_and_somebody_elses_is_not_judged(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.triton-matrix]\ntargets = ["sm_100"]\n')
    assert config.load(tmp_path).targets == ("sm_100",)
    project.write_text("[tool.other]\nthis is not TOML\n")
    assert config.load(tmp_path).targets == ()


def test_every_mistake_is_reported_at_once_with_its_line(tmp_path):
    found = problems(
        tmp_path,
        """\
baseline = "3.8.O"
targets = [
    "sm_90",
    "sm_91",
]
stage = ["compile"]
builtin = "no"
kernels = ["nowhere"]

[thresholds]
code_ratio = 0.5

[timeouts]
compile = -1

[[environments]]
id = "nightly"
triton = "3.10.0"
torch = "2.15.0"
[environments.variables]
TRITON_DEFAULT_FP_FUSION = 0

[[environments]]
id = "a b"
triton = "3.x y"
as_of = "yesterday"
""",
    )
    starts = [
        "1: baseline: there is no environment '3.8.O'",
        "4: targets: 'sm_91' is not one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_103, sm_120, sm_121, gfx942, ",
        "6: stage: unknown key (hint: did you mean 'stages'?)",
        "7: builtin: must be true or false, not 'no'",
        "8: kernels: 'nowhere' is neither a file nor a folder",
        "11: thresholds.code_ratio: code_ratio = 0.5 must be above 1",
        "14: timeouts.compile: must be a number of seconds above 0",
        "21: environments.variables.TRITON_DEFAULT_FP_FUSION: must be a text, not 0 (hint: write",
        "23: environments.torch: missing in a b",
        "24: environments.id: 'a b' holds characters",
        "25: environments.triton: '3.x y' is neither a version nor a requirement",
        "26: environments.as_of: must be a date",
    ]
    assert len(found) == len(starts), found
    for problem, start in zip(found, starts, strict=True):
        assert problem.startswith(start)


def test_an_empty_text_or_an_endless_time_means_nothing(tmp_path):
    found = problems(tmp_path, 'kernels = [""]\npythonpath = ["\\u0000"]\n[timeouts]\ncompile = inf\n')
    assert [
        word for problem, word in zip(found, ("empty text", "null", "above 0"), strict=True) if word in problem
    ] == ["empty text", "null", "above 0"]
    (tmp_path / "matrix.toml").unlink()
    (tmp_path / "matrix.toml").symlink_to("nowhere")
    with pytest.raises(ConfigurationError, match=r"matrix.toml: cannot be read"):
        config.load(tmp_path)


def test_syntax_errors_are_reported_beside_each_other_and_beside_the_rest(tmp_path):
    found = problems(tmp_path, 'baseline = 3.8.0\ntargets = ["sm_90"]\nstages = ["comple"]\ncases = softmax\n')
    assert [problem.partition(":")[0] for problem in found] == ["1", "3", "4"]
    assert "syntax" in found[0]
    assert "did you mean 'compile'?" in found[1]
    assert 'texts need quotes: "softmax"' in found[2]


def test_an_unclosed_list_is_one_mistake(tmp_path):
    found = problems(tmp_path, 'targets = [\n  "sm_90",\nstages = ["compile"]\ncases = ["a"]\n')
    assert len(found) == 1
    assert found[0].startswith("3: syntax")


def test_an_id_used_twice_names_both_lines(tmp_path):
    entry = '[[environments]]\nid = "x"\ntriton = "3.9.0"\ntorch = "2.15.0"\n'
    assert problems(tmp_path, entry + entry) == ["6: environments.id: 'x' is already used in line 2"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b""])
def test_a_file_that_is_no_text_or_is_empty(tmp_path, content):
    path = tmp_path / "matrix.toml"
    path.write_bytes(content)
    if not content:
        assert config.load(tmp_path).baseline == "newest-but-one"
        return
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        config.load(tmp_path)


def test_a_named_file_that_is_missing(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        config.load(tmp_path, file=tmp_path / "missing.toml")


def test_lines_are_found_through_multi_line_texts_and_nested_tables(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text('a = """\nb = 1\n[c]\n"""\n[[e]]\nx.y = 1\n[e.f]\ng = [\n  "[h]",\n]\n[[e]]\n"x y" = 2 # c\n')
    file = TomlFile.read(path)
    assert not file.problems
    places = {("a",): 1, ("e", 0): 5, ("e", 0, "x", "y"): 6, ("e", 0, "f", "g"): 8, ("e", 1, "x y"): 12}
    assert {place: file.line(place) for place in places} == places
    assert file.line(("e", 0, "f", "g"), "[h]") == 9
    assert file.line(("b",)) == 1
