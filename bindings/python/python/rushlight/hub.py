"""``torch.hub``: models from local sources. It supports ``file:`` addresses and never uses the network."""

import importlib.util
import os
import re
import shutil
import sys
from urllib.parse import urlparse
from urllib.request import url2pathname

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

#: A hash in a file's name: ``resnet18-f37072fd.pth``.
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
MODULE_HUBCONF = "hubconf.py"
VAR_DEPENDENCY = "dependencies"

_dir = []


def _get_torch_home():
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir():
    """The folder of files that were fetched."""
    return _dir[0] if _dir else os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    """Sets that folder."""
    _dir[:] = [os.path.expanduser(d)]


def _local(url):
    """The path that a ``file:`` address, or a path, names; None for others."""
    parts = urlparse(os.fspath(url))
    if parts.scheme == "file":
        return url2pathname(parts.path)
    return os.fspath(url) if not parts.scheme or os.path.exists(os.fspath(url)) else None


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Copies the file of a ``file:`` address."""
    source = _local(url)
    if source is None:
        raise NotImplementedError(f"torch.hub: files are not fetched from the network; fetch {url} yourself and put it at {dst}")
    if hash_prefix is not None:
        import hashlib

        with open(source, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if not digest.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest}")')
    shutil.copyfile(source, dst)


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False):
    """Reads a file that is in ``model_dir`` (the cache, unless one is named) already, or that a ``file:`` address names."""
    from .serialization import load

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    name = file_name or os.path.basename(urlparse(os.fspath(url)).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        if _local(url) is None:
            raise RuntimeError(f"torch.hub: files are not fetched from the network. Fetch {url} yourself and put it into {folder} as {name}")
        os.makedirs(folder, exist_ok=True)
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return load(path, map_location, weights_only=weights_only)


def _hubconf(folder):
    """The module ``hubconf`` of a folder."""
    path = os.path.join(folder, MODULE_HUBCONF)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location(MODULE_HUBCONF, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [name for name in getattr(module, VAR_DEPENDENCY, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _folder(repo_or_dir, source):
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return os.fspath(repo_or_dir)
    # PyTorch's folder for downloads: owner_repository_branch.
    repository, _, branch = repo_or_dir.partition(":")
    for ref in [branch] if branch else ["main", "master"]:
        path = os.path.join(get_dir(), f"{repository.replace('/', '_')}_{ref.replace('/', '_')}")
        if os.path.exists(path):
            return path
    raise NotImplementedError(f"torch.hub: {repo_or_dir} is not fetched from the network; fetch it and use source='local' with its folder")


def _entry(module, name):
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, verbose=True, skip_validation=False, **kwargs):
    """Calls a function of a folder's ``hubconf.py``."""
    return _entry(_hubconf(_folder(repo_or_dir, source)), model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, source="github"):
    """Names of the functions of a folder's ``hubconf.py``."""
    module = _hubconf(_folder(github, "local" if os.path.isdir(github) else source))
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None):
    """The docstring of such a function."""
    return _entry(_hubconf(_folder(github, "local" if os.path.isdir(github) else "github")), model).__doc__


def __getattr__(name):
    if name == "tqdm":
        # Libraries import it from here.
        from tqdm import tqdm

        return tqdm
    from ._functions import _missing

    return _missing("torch.hub", name)
