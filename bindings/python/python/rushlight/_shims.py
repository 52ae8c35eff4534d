"""Distributions named ``torch``, ``torchvision`` and ``torchaudio`` that forward to this package.

Libraries read torch's version from ``importlib.metadata``, and pip checks it before it installs them. A shim provides both: metadata that depends on
rushlight, and a module that redirects imports to it. ``python -m rushlight --install`` writes them into this environment,
``python -m rushlight --uninstall`` (or ``pip uninstall torch torchvision torchaudio``) removes them.
"""

import base64
import hashlib
import importlib.metadata
import os
import sys
import sysconfig
import zipfile

from ._version import __version__, audio_version, vision_version

#: Distributions by name, with their versions.
SHIMS = {"torch": __version__, "torchvision": vision_version, "torchaudio": audio_version}

_SUMMARY = "Rushlight under the name of {name}"

_MODULE = '''"""{summary}: every import of ``{name}`` is served by rushlight."""

from rushlight._install import stand_in

stand_in(__name__)
'''

_METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {summary}
{requires}"""

_WHEEL = """Wheel-Version: 1.0
Generator: rushlight
Root-Is-Purelib: true
Tag: py3-none-any
"""


class ShimError(RuntimeError):
    """A shim that cannot be installed or removed."""


#: Scripts by the distribution that brings them, with their entry points.
SCRIPTS = {"torch": {"torchrun": "rushlight.run:main"}}

#: Further modules of a distribution.
MODULES = {"torch": ("functorch",)}

_SCRIPT = """#!{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


def _info(name):
    return f"{name}-{SHIMS[name]}.dist-info"


def scripts(name, place):
    """The scripts of a shim in this environment, by their path seen from ``place``."""
    found = {}
    for script, entry in SCRIPTS.get(name, {}).items():
        module, function = entry.split(":")
        path = os.path.relpath(os.path.join(sysconfig.get_paths()["scripts"], script), place)
        found[path] = _SCRIPT.format(python=sys.executable, module=module, function=function)
    return found


def files(name, requires=True, scripts=None):
    """The files of a shim, by their path in site-packages."""
    told = {"name": name, "version": SHIMS[name], "summary": _SUMMARY.format(name=name), "requires": "Requires-Dist: rushlight\n" * requires}
    found = {
        f"{name}/__init__.py": _MODULE.format(**told),
        f"{_info(name)}/METADATA": _METADATA.format(**told),
        f"{_info(name)}/WHEEL": _WHEEL,
        f"{_info(name)}/INSTALLER": "rushlight\n",
        f"{_info(name)}/top_level.txt": f"{name}\n",
    }
    for more in MODULES.get(name, ()):
        found[f"{more}/__init__.py"] = _MODULE.format(**{**told, "name": more})
        found[f"{_info(name)}/top_level.txt"] += f"{more}\n"
    if name in SCRIPTS:
        lines = [f"{script} = {entry}" for script, entry in SCRIPTS[name].items()]
        found[f"{_info(name)}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines, ""])
    found.update(scripts or {})
    record = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in found.items()]
    found[f"{_info(name)}/RECORD"] = "\n".join([*record, f"{_info(name)}/RECORD,,", ""])
    return found


def _digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _distribution(name):
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed(name):
    """The distribution of a name, and whether it is a shim; None if it is not installed."""
    found = _distribution(name)
    return None if found is None else (found, found.metadata["Summary"] == _SUMMARY.format(name=name))


def install(names=tuple(SHIMS)):
    """Writes shims into this environment's site-packages. Raises if a real distribution has the name."""
    place = sysconfig.get_paths()["purelib"]
    for name in names:
        found = installed(name)
        if found is not None and not found[1]:
            raise ShimError(f"{name} {found[0].version} is installed here; run `pip uninstall {name}` first, or use another environment")
        if found is None and os.path.exists(os.path.join(place, name)):
            raise ShimError(f"{os.path.join(place, name)} exists and belongs to no distribution; remove it first")
    uninstall(names)
    # Where rushlight is used from its source tree pip does not know it, and would fetch a torch whose requirements it
    # can meet.
    requires = _distribution("rushlight") is not None
    for name in names:
        added = scripts(name, place)
        for path, text in files(name, requires, added).items():
            full = os.path.normpath(os.path.join(place, path))
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
            if path in added:
                os.chmod(full, 0o755)


def uninstall(names=tuple(SHIMS)):
    """Removes shims. Leaves real distributions alone. Returns the names that were removed."""
    removed = []
    for name in names:
        found = installed(name)
        if found is None or not found[1]:
            continue
        folders = set()
        for path in found[0].files or ():
            inside = ".." not in path.parts
            path = os.fspath(found[0].locate_file(path))
            if inside:
                folders.add(os.path.dirname(path))
            if os.path.exists(path):
                os.remove(path)
        for folder in folders:
            _remove(folder)
        removed.append(name)
    return removed


def _remove(folder):
    """Removes a folder of a shim with its compiled modules."""
    cache = os.path.join(folder, "__pycache__")
    if os.path.isdir(cache):
        for file in os.listdir(cache):
            os.remove(os.path.join(cache, file))
        os.rmdir(cache)
    if os.path.isdir(folder) and not os.listdir(folder):
        os.rmdir(folder)


def wheel(name, folder):
    """Writes a shim as a wheel, for pip to install. Returns its path."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}-{SHIMS[name]}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, text in files(name).items():
            if not inner.endswith("INSTALLER"):
                archive.writestr(inner, text)
    return path
