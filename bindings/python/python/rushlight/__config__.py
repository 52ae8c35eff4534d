"""``torch.__config__``: a description of the build."""

import os
import platform

from . import _C
from ._version import __version__


def show():
    """The engines and their features."""
    from .backends import cpu

    found = [f"rushlight {__version__} (Rust)", f"  - CPU capability usage: {cpu.get_cpu_capability()}", f"  - Python {platform.python_version()}"]
    for index in range(_C._device_count()):
        name, memory, _, (major, minor), *_ = _C._device_properties(index)
        found.append(f"  - cuda:{index}: {name}, {memory // 2**20} MiB, compute capability {major}.{minor}")
    return "\n".join(found) + "\n"


def parallel_info():
    """Number of compute threads."""
    return f"rushlight's thread pool:\n\tthreads : {_C.get_num_threads()}\n\tprocessors : {os.cpu_count()}\n"
