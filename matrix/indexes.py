"""Carries pip's settings over to uv, which does not read them.

Many machines reach their packages only through what pip was told: an index of the company's, a folder of
wheels, a certificate. Where uv has no setting of its own for the same thing, it gets pip's.

Standard library only, and no import of this package: the noxfile loads this file by its path.

Read as pip reads them (https://pip.pypa.io/en/stable/topics/configuration/): ``PIP_*`` variables win over
the file that ``PIP_CONFIG_FILE`` names, which wins over the interpreter's, the user's and the host's
``pip.conf``; ``[install]`` wins over ``[global]``. Constraints are left out on purpose: they pin what an
ordinary install gets, and choosing other versions is what this program is for.
"""

from __future__ import annotations

import configparser
import os
import ssl
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import tomllib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# An index without packages: uv has no variable that says --no-index. A folder that is not there will do.
NO_INDEX = "file:///no-such-index/simple"

_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
_INDEX_KEYS = ("index", "index-url", "extra-index-url", "no-index")
_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
_CERTIFICATE_KEYS = ("system-certs", "native-tls")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def uv_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables to add to uv's environment, so that it finds packages where pip would.

    A group (indexes, find-links, certificates, hosts, proxies, patience) in which uv has a variable or a
    ``uv.toml`` entry of its own is left alone as a whole.
    """
    environ = os.environ if environ is None else environ
    pip = pip_settings(environ)
    own = _uv_file_keys(environ)
    settings: dict[str, str] = {}
    if not _set(environ, _INDEX_VARIABLES) and not own.intersection(_INDEX_KEYS):
        settings |= _indexes(pip, environ)
    if not _set(environ, ("UV_FIND_LINKS",)) and "find-links" not in own:
        settings |= _joined("UV_FIND_LINKS", _links(pip.get("find-links", "").split()), ",")
    if not _set(environ, _CERTIFICATE_VARIABLES) and not own.intersection(_CERTIFICATE_KEYS):
        settings |= _certificates(pip)
    if not _set(environ, ("UV_INSECURE_HOST",)) and "allow-insecure-host" not in own:
        settings |= _joined("UV_INSECURE_HOST", pip.get("trusted-host", "").split(), " ")
    if not _set(environ, _PROXY_VARIABLES) and (proxy := pip.get("proxy")):
        settings |= {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy}
    return settings | _one_to_one(pip, environ)


def pip_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What pip's ``install`` would use, by option name (``index-url``), from files and variables."""
    environ = os.environ if environ is None else environ
    merged: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _pip_files(environ):
        for section, values in _read_ini(path).items():
            merged.setdefault(section, {}).update(values)
    variables = {
        _option(name.removeprefix("PIP_")): value
        for name, value in environ.items()
        if name.startswith("PIP_") and value.strip()
    }
    return merged["global"] | merged["install"] | variables


def _indexes(pip: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    if pip.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        return {"UV_DEFAULT_INDEX": NO_INDEX}
    settings = _joined("UV_DEFAULT_INDEX", [_url(part) for part in pip.get("index-url", "").split()[:1]], " ")
    extra = _joined("UV_INDEX", [_url(part) for part in pip.get("extra-index-url", "").split()], " ")
    if extra and not _set(environ, ("UV_INDEX_STRATEGY",)):
        # pip takes the best candidate of all indexes, uv by default the first index that has the name.
        extra["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return settings | extra


def _certificates(pip: Mapping[str, str]) -> dict[str, str]:
    if certificate := pip.get("cert"):
        return {"SSL_CERT_FILE": str(Path(certificate).expanduser())}
    # pip trusts what the system trusts (truststore, pip 24.2); uv has a list of its own.
    paths = ssl.get_default_verify_paths()
    return {"UV_SYSTEM_CERTS": "true"} if paths.cafile else {}


def _one_to_one(pip: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    pairs = {
        "UV_HTTP_TIMEOUT": pip.get("timeout") or pip.get("default-timeout"),
        "UV_HTTP_RETRIES": pip.get("retries"),
        "UV_KEYRING_PROVIDER": "subprocess" if pip.get("keyring-provider") == "subprocess" else None,
        "SSL_CLIENT_CERT": pip.get("client-cert"),
    }
    return {name: value.strip() for name, value in pairs.items() if value and not environ.get(name)}


def _links(values: Sequence[str]) -> Iterator[str]:
    """Folders and pages; a folder that is not there only makes pip warn, but would make uv fail."""
    for value in values:
        parts = urlsplit(value)
        if parts.scheme in {"http", "https"}:
            yield value
            continue
        folder = Path(unquote(parts.path) if parts.scheme == "file" else value).expanduser()
        if folder.is_dir():
            yield str(folder.resolve())


def _url(value: str) -> str:
    """An index as a URL: pip also takes the path of a local folder."""
    return value if "://" in value else Path(value).expanduser().resolve().as_uri()


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that pip reads, the weakest first."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = _home(environ)
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    files = [Path(folder, "pip", name) for folder in _system_folders(environ)]
    if sys.platform != "win32":
        files.append(Path("/etc", name))
    if not (named and Path(named).exists()):
        files += [home / ".pip" / name, _user_folder(environ, "pip") / name]
    files.append(Path(sys.prefix, name))
    return files + ([Path(named)] if named else [])


def _system_folders(environ: Mapping[str, str]) -> list[str]:
    if sys.platform == "darwin":
        return ["/Library/Application Support"]
    folders = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return [folder for folder in reversed(folders.split(os.pathsep)) if folder]


def _user_folder(environ: Mapping[str, str], program: str) -> Path:
    home = _home(environ)
    mac = home / "Library/Application Support" / program
    if sys.platform == "darwin" and mac.is_dir():
        return mac
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / program


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _read_ini(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}  # not there, or not readable: pip itself complains about the latter
    return {
        section: {_option(key): value for key, value in parser.items(section) if value and value.strip()}
        for section in parser.sections()
    }


def _uv_file_keys(environ: Mapping[str, str]) -> set[str]:
    """The settings that a ``uv.toml`` of the user or the host makes."""
    if environ.get("UV_NO_CONFIG", "").lower() in {"1", "true"}:
        return set()
    named = environ.get("UV_CONFIG_FILE")
    folders = [*(Path(folder, "uv") for folder in _system_folders(environ)), Path("/etc/uv")]
    files = [Path(named)] if named else [_user_folder(environ, "uv") / "uv.toml"]
    files += [] if named else [folder / "uv.toml" for folder in folders]
    keys: set[str] = set()
    for file in files:
        try:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue  # not there, or uv itself complains
        pip = data.get("pip")
        keys.update(data, pip if isinstance(pip, dict) else ())
    return keys


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _set(environ: Mapping[str, str], names: Sequence[str]) -> bool:
    return any(environ.get(name) for name in names)


def _joined(name: str, values: Iterator[str] | Sequence[str], separator: str) -> dict[str, str]:
    text = separator.join(values)
    return {name: text} if text else {}
