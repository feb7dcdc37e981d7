from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from wheels import make_wheel

from matrix import indexes
from matrix.provisioning import uv


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host on which nothing is set up: an empty home, and no files of the real host's."""
    monkeypatch.setattr(indexes, "_system_folders", lambda environ: [str(tmp_path / "xdg")])
    monkeypatch.setattr(indexes.sys, "prefix", str(tmp_path / "prefix"))
    real = indexes._read_ini

    def inside(path):
        return real(path) if path.is_relative_to(tmp_path) else {}

    monkeypatch.setattr(indexes, "_read_ini", inside)
    monkeypatch.setattr(indexes.ssl, "get_default_verify_paths", lambda: type("Paths", (), {"cafile": None}))
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_is_carried_from_a_host_without_settings(host):
    assert indexes.uv_settings(host) == {}


def test_variables_become_uvs(host, tmp_path):
    (tmp_path / "a").mkdir()
    settings = indexes.uv_settings(
        host
        | {
            "PIP_INDEX_URL": "https://one.example/simple",
            "PIP_EXTRA_INDEX_URL": "https://two.example/simple https://three.example/simple",
            "PIP_FIND_LINKS": f"{tmp_path / 'a'} https://four.example/wheels",
            "PIP_CERT": "/certificates.pem",
            "PIP_TRUSTED_HOST": "one.example two.example",
            "PIP_PROXY": "http://proxy.example:3128",
            "PIP_DEFAULT_TIMEOUT": "180",
        }
    )
    assert settings == {
        "UV_DEFAULT_INDEX": "https://one.example/simple",
        "UV_INDEX": "https://two.example/simple https://three.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path / 'a'},https://four.example/wheels",
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_INSECURE_HOST": "one.example two.example",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_files_are_read_in_pips_order(host, tmp_path):
    write(tmp_path / "xdg/pip/pip.conf", "[global]\nindex-url = https://host.example\ncert = /host.pem\n")
    write(tmp_path / "home/.pip/pip.conf", "[global]\nindex_url = https://legacy.example\nproxy = http://p\n")
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex-url = https://user.example\n")
    settings = indexes.pip_settings(host)
    assert settings == {"index-url": "https://user.example", "cert": "/host.pem", "proxy": "http://p"}
    write(tmp_path / "prefix/pip.conf", "[global]\nindex-url = https://site.example\n")
    assert indexes.pip_settings(host)["index-url"] == "https://site.example"
    assert indexes.pip_settings(host | {"PIP_INDEX_URL": "https://env"})["index-url"] == "https://env"


def test_the_install_section_wins_over_global_in_a_stronger_file(host, tmp_path):
    write(tmp_path / "xdg/pip/pip.conf", "[install]\nindex-url = https://install.example\n")
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex-url = https://global.example\n")
    assert indexes.pip_settings(host)["index-url"] == "https://install.example"


def test_the_named_file_replaces_the_users(host, tmp_path):
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\ncert = /user.pem\n")
    named = write(tmp_path / "named.conf", "[global]\nindex-url = https://named.example\n")
    settings = indexes.pip_settings(host | {"PIP_CONFIG_FILE": str(named)})
    assert settings.pop("config-file") == str(named)
    assert settings == {"index-url": "https://named.example"}
    off = indexes.pip_settings(host | {"PIP_CONFIG_FILE": os.devnull})
    assert "cert" not in off


def test_what_uv_has_of_its_own_is_left_alone(host, tmp_path):
    pip = host | {"PIP_INDEX_URL": "https://pip.example", "PIP_EXTRA_INDEX_URL": "https://more.example"}
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        assert indexes.uv_settings(pip | {name: "https://uv.example"}) == {}
    write(tmp_path / "home/.config/uv/uv.toml", '[[index]]\nurl = "https://uv.example"\n')
    assert indexes.uv_settings(pip | {"PIP_CERT": "/c.pem"}) == {"SSL_CERT_FILE": "/c.pem"}


def test_a_broken_pip_conf_is_pips_to_report(host, tmp_path):
    write(tmp_path / "home/.config/pip/pip.conf", "index-url = no section\n")
    assert indexes.uv_settings(host) == {}


def test_a_folder_of_wheels_that_is_not_there_is_dropped(host, tmp_path):
    assert indexes.uv_settings(host | {"PIP_FIND_LINKS": str(tmp_path / "nowhere")}) == {}


def test_the_systems_certificates_serve_uv_where_pip_would_trust_them(host, monkeypatch):
    monkeypatch.setattr(indexes.ssl, "get_default_verify_paths", lambda: type("Paths", (), {"cafile": "/x"}))
    assert indexes.uv_settings(host) == {"UV_SYSTEM_CERTS": "true"}
    assert indexes.uv_settings(host | {"SSL_CERT_FILE": "/own.pem"}) == {}


def test_uv_resolves_with_file_indexes_that_lack_a_package(tmp_path, monkeypatch):
    """pip passes over an index that does not know a package, and so must uv."""
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "alpha", "1.0", "beta")
    make_wheel(wheels, "beta", "2.0")
    page = '<a href="../../alpha-1.5-py3-none-any.whl">alpha-1.5-py3-none-any.whl</a>'
    make_wheel(tmp_path / "index", "alpha", "1.5", "beta")
    write(tmp_path / "index/simple/alpha/index.html", f"<!DOCTYPE html><html><body>{page}</body></html>")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_INDEX", "UV_EXTRA", "UV_DEFAULT"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "nothing/simple").as_uri())
    extra = [(tmp_path / "index/simple").as_uri(), (tmp_path / "absent/simple").as_uri()]
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", " ".join(extra))
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    wanted = write(tmp_path / "requirements.in", "alpha\n")
    out = uv.run(["pip", "compile", str(wanted), "--no-header", "--no-annotate"])
    assert out.split() == ["alpha==1.5", "beta==2.0"]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    out = uv.run(["pip", "compile", str(wanted), "--no-header", "--no-annotate"])
    assert out.split() == ["alpha==1.0", "beta==2.0"]


def test_the_file_stands_alone(tmp_path):
    """The noxfile loads it by path, in an interpreter that has nothing installed."""
    code = f"import runpy; print(callable(runpy.run_path({indexes.__file__!r})['uv_settings']))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
