"""Extensions in C++: ``torch.utils.cpp_extension``.

An extension includes ``torch/extension.h`` and links the compiled module of this package, which contains the C interface under the name ``librushlight.so``. Its
tensors are those of Python: the same memory, the same autograd graph. Conversions of arguments are pybind11's, which must be installed.
"""

import concurrent.futures
import glob
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import warnings

from .. import _C

__all__ = [
    "BuildExtension", "CUDAExtension", "CppExtension", "SyclExtension", "check_compiler_is_gcc", "check_compiler_ok_for_platform",
    "get_compiler_abi_compatibility_and_version", "get_cxx_compiler", "get_default_build_root", "include_paths", "is_ninja_available", "library_paths", "load",
    "load_inline", "verify_ninja_availability",
]

IS_LINUX = sys.platform.startswith("linux")
IS_WINDOWS = sys.platform == "win32"
IS_MACOS = sys.platform.startswith("darwin")
SHARED_FLAG = "-shared"
CUDA_HOME = ROCM_HOME = CUDNN_HOME = None
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _headers():
    """Folders of the C and C++ headers: the package's, or those of the source tree that it is used from."""
    packaged = os.path.join(_PACKAGE, "include")
    if os.path.exists(os.path.join(packaged, "torch", "torch.h")):
        return [packaged]
    bindings = os.path.dirname(os.path.dirname(os.path.dirname(_PACKAGE)))
    found = [os.path.join(bindings, name, "include") for name in ("cpp", "c")]
    if os.path.exists(os.path.join(found[0], "torch", "torch.h")):
        return found
    raise RuntimeError("this installation of rushlight has no C++ headers; install a wheel made by scripts/wheels, or unpack the archive of scripts/cpp-package")


def _cmake_prefix_path():
    """The folder for CMAKE_PREFIX_PATH: find_package(Torch) finds this package's headers and library."""
    path = os.path.join(_PACKAGE, "share", "cmake")
    if not os.path.exists(os.path.join(path, "Torch", "TorchConfig.cmake")):
        raise RuntimeError("torch.utils.cmake_prefix_path: this installation of rushlight has no CMake package; install a wheel made by scripts/wheels, or use the folder of scripts/cpp-package")
    return path


def _refuse_device(device_type, what):
    if device_type != "cpu":
        raise NotImplementedError(f"{what}: extensions for {device_type} are not supported; write the op in C++ with functions of torch, which run on every device")


def include_paths(device_type="cpu", torch_include_dirs=True):
    """Folders of headers that an extension needs."""
    _refuse_device(device_type, "include_paths")
    return _headers() if torch_include_dirs else []


def library_paths(device_type="cpu", torch_include_dirs=True, cross_target_platform=None):
    """Folders of libraries that an extension needs."""
    _refuse_device(device_type, "library_paths")
    return [os.path.dirname(os.path.abspath(_C.__file__))]


def _pybind11_include():
    """The folder of pybind11's headers, of pip's package or the system's."""
    try:
        import pybind11

        return [pybind11.get_include()]
    except ImportError:
        pass
    for folder in ("/usr/include", "/usr/local/include", os.path.join(sys.prefix, "include")):
        if os.path.exists(os.path.join(folder, "pybind11", "pybind11.h")):
            return [] if folder == "/usr/include" else [folder]
    return None


def _python_includes():
    found = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    return sorted(path for path in found if path and os.path.exists(path))


# Compilers.


def get_cxx_compiler():
    """The C++ compiler's command."""
    return os.environ.get("CXX", "cl" if IS_WINDOWS else "c++")


def check_compiler_is_gcc(compiler):
    """Whether a command is g++, or c++ that is g++."""
    try:
        text = subprocess.run([*shlex.split(compiler), "-v"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stderr
    except OSError:
        return False
    return "gcc version" in text


def check_compiler_ok_for_platform(compiler):
    """Whether a compiler can build extensions here."""
    return shutil.which(shlex.split(compiler)[0]) is not None


def get_compiler_abi_compatibility_and_version(compiler):
    """Whether a compiler has C++17, and its version."""
    from ..torch_version import TorchVersion

    try:
        text = subprocess.run([*shlex.split(compiler), "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        warnings.warn(f"Error checking compiler version for {compiler}", stacklevel=2)
        return False, TorchVersion("0.0.0")
    numbers = [int(n) for n in re.findall(r"\d+", text)[:3]]
    return tuple(numbers) >= (7, 0), TorchVersion(".".join(map(str, numbers)))


def is_ninja_available():
    """Whether Ninja is installed. It is not needed: this module runs the compiler itself."""
    return shutil.which("ninja") is not None


def verify_ninja_availability():
    """An error if Ninja is not installed."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def get_default_build_root():
    """The folder in which extensions are built."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rushlight_extensions")


_CUDA_SUFFIXES = (".cu", ".cuh", ".hip", ".sycl")


def _refuse_cuda(sources, what):
    devices = [str(source) for source in sources if str(source).endswith(_CUDA_SUFFIXES)]
    if devices:
        raise NotImplementedError(f"{what}: {devices[0]} is a kernel for a GPU; extensions have C++ sources, whose functions of torch run on every device")


def _run(command, what, verbose):
    if verbose:
        print(" ".join(map(shlex.quote, command)), file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, capture_output=not verbose, text=True)
    except FileNotFoundError:
        raise RuntimeError(f"Error building extension: the compiler '{command[0]}' is not installed (apt-get install g++), or set CXX") from None
    if done.returncode:
        raise RuntimeError(f"Error building extension '{what}': {' '.join(map(shlex.quote, command))}\n{(done.stdout or '') + (done.stderr or '')}")


def _compile_flags(name, includes, cflags, pybind11):
    flags = [f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC"]
    if not any(flag.startswith("-std=") for flag in cflags):
        flags.append("-std=c++17")
    for path in includes:
        flags += ["-I", os.path.abspath(path)]
    for path in [*_headers(), *pybind11, *_python_includes()]:
        flags += ["-isystem", path]
    return flags + list(cflags)


def _link_flags():
    """The compiled module, which is recorded as librushlight.so: the loader takes the one that Python has loaded."""
    return [os.path.abspath(_C.__file__), "-pthread"]


def _uses_pybind11(sources):
    def mentions(path):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return re.search(r"torch/(extension|python)\.h|pybind11", file.read()) is not None
        except OSError:
            return False

    return any(mentions(source) for source in sources)


def _pybind11_for(sources):
    if not _uses_pybind11(sources):
        return []
    found = _pybind11_include()
    if found is None:
        raise RuntimeError("extensions with torch/extension.h need pybind11's headers: pip install pybind11, or on Debian apt-get install pybind11-dev")
    return found


def _is_stale(object_file, signature):
    """Whether an object must be compiled: no record of it, other flags, or a file that has changed since."""
    try:
        with open(object_file + ".flags", encoding="utf-8") as file:
            if file.read() != signature:
                return True
        built = os.path.getmtime(object_file)
        with open(object_file + ".d", encoding="utf-8") as file:
            files = file.read().replace("\\\n", " ").partition(":")[2].split()
        return any(os.path.getmtime(path) > built for path in files)
    except OSError:
        return True


class _Lock:
    """One process builds in a folder at a time; a lock that its process has left is free."""

    def __init__(self, path):
        self._path = path

    def __enter__(self):
        import fcntl

        self._file = open(self._path, "w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *error):
        self._file.close()


def _build(name, sources, cflags, ldflags, includes, folder, verbose, standalone):
    """Compiles what has changed and links it; returns the library's path."""
    compiler = shlex.split(get_cxx_compiler())
    if standalone:
        flags = _compile_flags(name, includes, cflags, [])
        library = ["-L" + os.path.join(_PACKAGE, "lib"), "-lrushlight", "-Wl,-rpath," + os.path.join(_PACKAGE, "lib"), "-pthread"]
        if not os.path.exists(os.path.join(_PACKAGE, "lib", "librushlight.so")):
            raise RuntimeError("load(is_standalone=True): a program needs librushlight.so, which wheels of scripts/wheels have; or build it with the folder of scripts/cpp-package")
    else:
        flags, library = _compile_flags(name, includes, cflags, _pybind11_for(sources)), _link_flags()
    target = os.path.join(folder, name if standalone else f"{name}.so")
    objects, jobs = [], []
    for at, source in enumerate(sources):
        source = os.path.abspath(source)
        objects.append(os.path.join(folder, f"{os.path.splitext(os.path.basename(source))[0]}.{at}.o"))
        command = [*compiler, "-MMD", "-MF", objects[-1] + ".d", *flags, "-c", source, "-o", objects[-1]]
        signature = "\n".join(command)
        if _is_stale(objects[-1], signature):
            jobs.append((command, objects[-1], signature))
    link = [*compiler, *objects, *([] if standalone else ["-shared"]), *ldflags, *library, "-o", target]
    signature = "\n".join(link)

    def job(command, output, text):
        _run(command, name, verbose)
        with open(output + ".flags", "w", encoding="utf-8") as file:
            file.write(text)

    workers = int(os.environ.get("MAX_JOBS") or min(len(jobs) or 1, os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(max(workers, 1)) as pool:
        for done in [pool.submit(job, *each) for each in jobs]:
            done.result()
    linked = False
    try:
        with open(target + ".flags", encoding="utf-8") as file:
            linked = file.read() == signature and all(os.path.getmtime(path) <= os.path.getmtime(target) for path in [*objects, os.path.abspath(_C.__file__)])
    except OSError:
        pass
    if not linked:
        # Another file than one that a process may have loaded.
        fresh = f"{target}.{os.getpid()}"
        _run([fresh if part is target else part for part in link], name, verbose)
        os.replace(fresh, target)
        with open(target + ".flags", "w", encoding="utf-8") as file:
            file.write(signature)
    return target


#: Modules that are loaded, by path: their contents' digest, the module.
_loaded = {}
#: Of each name and folder: the digest of sources and flags, and how often they have changed in this process.
_versions = {}


def _digest(paths, more=()):
    digest = hashlib.sha256("\n".join(map(str, more)).encode())
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def _version(name, folder, digest):
    """The number of a name's contents. Python keeps a loaded module by its name, so changed sources get another one, as in PyTorch."""
    known, version = _versions.get((name, folder), (digest, 0))
    version += known != digest
    _versions[(name, folder)] = (digest, version)
    return version


def _import(name, path):
    """The module of a library; None if another one of the same name is loaded."""
    digest = _digest([path])
    if path in _loaded:
        return _loaded[path][1] if _loaded[path][0] == digest else None
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _loaded[path] = (digest, module)
    return module


def _flags(value):
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def load(
    name, sources, extra_cflags=None, extra_cuda_cflags=None, extra_sycl_cflags=None, extra_ldflags=None, extra_include_paths=None, build_directory=None, verbose=False,
    with_cuda=None, with_sycl=None, is_python_module=True, is_standalone=False, keep_intermediates=True,
):
    """Compiles C++ sources and loads them: as a Python module, as a library of ops (``is_python_module=False``), or as a program (``is_standalone=True``).

    Sources that have not changed are not compiled again.
    """
    sources = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    _refuse_cuda(sources, "torch.utils.cpp_extension.load")
    if with_cuda or with_sycl or extra_cuda_cflags or extra_sycl_cflags:
        raise NotImplementedError("torch.utils.cpp_extension.load: kernels for GPUs are not compiled here; functions of torch run on every device")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"the name of an extension must be a Python name, got {name!r}")
    folder = os.fspath(build_directory) if build_directory is not None else os.path.join(
        os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root(), f"py{sys.version_info[0]}{sys.version_info[1]}", name)
    os.makedirs(folder, exist_ok=True)
    sources = [os.fspath(source) for source in sources]
    cflags, ldflags, includes = _flags(extra_cflags), _flags(extra_ldflags), _flags(extra_include_paths)
    version = _version(name, folder, _digest(filter(os.path.exists, sources), [*cflags, *ldflags, *includes]))
    while True:
        full = f"{name}_v{version}" if version else name
        with _Lock(os.path.join(folder, "lock")):
            path = _build(full, sources, cflags, ldflags, includes, folder, verbose, is_standalone)
            if not keep_intermediates:
                for pattern in ("*.o", "*.o.d", "*.o.flags"):
                    for file in glob.glob(os.path.join(folder, pattern)):
                        os.remove(file)
        if is_standalone:
            return path
        if not is_python_module:
            from .._ops import ops

            ops.load_library(path)
            return path
        module = _import(full, path)
        if module is not None:
            return module
        # A header has changed since the module was loaded.
        version += 1
        _versions[(name, folder)] = (_versions[(name, folder)][0], version)


def load_inline(
    name, cpp_sources, cuda_sources=None, sycl_sources=None, functions=None, extra_cflags=None, extra_cuda_cflags=None, extra_sycl_cflags=None, extra_ldflags=None,
    extra_include_paths=None, build_directory=None, verbose=False, with_cuda=None, with_sycl=None, is_python_module=True, with_pytorch_error_handling=True,
    keep_intermediates=True, use_pch=False, no_implicit_headers=False,
):
    """``load`` of sources that are strings; ``functions`` are the names of those that Python calls, or a dictionary from names to documentation."""
    if cuda_sources or sycl_sources:
        raise NotImplementedError("torch.utils.cpp_extension.load_inline: kernels for GPUs are not compiled here; functions of torch run on every device")
    if use_pch:
        raise NotImplementedError("torch.utils.cpp_extension.load_inline: use_pch is not supported; the headers compile in seconds")
    folder = os.fspath(build_directory) if build_directory is not None else os.path.join(
        os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root(), f"py{sys.version_info[0]}{sys.version_info[1]}", name)
    os.makedirs(folder, exist_ok=True)
    parts = [] if no_implicit_headers else ["#include <torch/extension.h>"]
    parts += [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    if functions is not None:
        if isinstance(functions, str):
            functions = [functions]
        documented = functions if isinstance(functions, dict) else {function: function for function in functions}
        parts.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        for function, text in documented.items():
            quoted = '"' + str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
            parts.append(f'  m.def("{function}", &{function}, {quoted});')
        parts.append("}")
    source, text = os.path.join(folder, "main.cpp"), "\n".join(parts) + "\n"
    try:
        with open(source, encoding="utf-8") as file:
            same = file.read() == text
    except OSError:
        same = False
    if not same:
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
    return load(
        name, [source], extra_cflags, extra_cuda_cflags, extra_sycl_cflags, extra_ldflags, extra_include_paths, folder, verbose, with_cuda, with_sycl, is_python_module,
        keep_intermediates=keep_intermediates)


# Extensions of packages, for setup.py.


def CppExtension(name, sources, *args, **kwargs):
    """A ``setuptools.Extension`` with the flags of this package."""
    import setuptools

    _refuse_cuda(sources, "CppExtension")
    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths(), *(_pybind11_include() or [])]
    kwargs["extra_link_args"] = [*kwargs.get("extra_link_args", []), *_link_flags()]
    kwargs["language"] = "c++"
    return setuptools.Extension(name, sources, *args, **kwargs)


def _for_gpus(name):
    def make(*args, **kwargs):
        raise NotImplementedError(f"torch.utils.cpp_extension.{name}: kernels for GPUs are not compiled here; use CppExtension, whose functions of torch run on every device")

    make.__name__ = make.__qualname__ = name
    make.__doc__ = "Not supported: extensions have C++ sources."
    return make


CUDAExtension = _for_gpus("CUDAExtension")
SyclExtension = _for_gpus("SyclExtension")


def _build_ext():
    """The base of :class:`BuildExtension`; setuptools need not be installed to import this module."""
    try:
        from setuptools.command.build_ext import build_ext
    except ImportError:
        return object
    return build_ext


class BuildExtension(_build_ext()):
    """``setuptools``' command that compiles extensions, with the flags that :func:`CppExtension` needs."""

    @classmethod
    def with_options(cls, **options):
        """This command with options, as ``no_python_abi_suffix``."""

        class WithOptions(cls):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **{**kwargs, **options})

        return WithOptions

    def __init__(self, *args, **kwargs):
        if _build_ext() is object:
            raise RuntimeError("BuildExtension needs setuptools: pip install setuptools")
        super().__init__(*args, **{name: value for name, value in kwargs.items() if name not in ("use_ninja", "no_python_abi_suffix")})
        self.no_python_abi_suffix = kwargs.get("no_python_abi_suffix", False)

    def build_extensions(self):
        """Compiles all extensions."""
        self.compiler.src_extensions += [".cc"] if ".cc" not in self.compiler.src_extensions else []
        for extension in self.extensions:
            _refuse_cuda(extension.sources, "BuildExtension")
            flags = extension.extra_compile_args
            # PyTorch takes flags by compiler.
            flags = list(flags.get("cxx", [])) if isinstance(flags, dict) else list(flags or [])
            flags += [f"-DTORCH_EXTENSION_NAME={extension.name.rpartition('.')[2]}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
            extension.extra_compile_args = flags if any(flag.startswith("-std=") for flag in flags) else [*flags, "-std=c++17"]
        super().build_extensions()

    def get_ext_filename(self, ext_name):
        """The file's name."""
        name = super().get_ext_filename(ext_name)
        if self.no_python_abi_suffix:
            parts = name.split(".")
            name = ".".join([*parts[:-2], parts[-1]]) if len(parts) > 2 else name
        return name
