"""``torch.backends``: settings that scripts change. Those with a meaning here take effect, the others are stored."""

import contextlib
import importlib.machinery
import sys
import types

from .. import _C


class _Settings(types.ModuleType):
    """A namespace of settings; ``import torch.backends.cudnn`` finds it as a module."""

    _built = False

    def __init__(self, name, **settings):
        super().__init__(f"{__name__}.{name}")
        self.__dict__.update(settings)
        self.__spec__ = importlib.machinery.ModuleSpec(self.__name__, None)
        sys.modules[self.__name__] = self

    def __setattr__(self, name, value):
        # PyTorch freezes the settings of its libraries, but not those of products.
        if _frozen and not name.startswith("__") and not self.__name__.endswith(".matmul"):
            raise RuntimeError(f"not allowed to set {self.__name__} flags after disable_global_flags; please use flags() context manager instead")
        super().__setattr__(name, value)

    def is_available(self):
        return self._built and _C._device_count() > 0

    def is_built(self):
        return self._built

    def version(self):
        return None

    def flags(self, **kwargs):
        return _Flags(self, kwargs)


#: Whether settings change only within ``flags()``.
_frozen = False


def disable_global_flags():
    """From now on settings change only within ``flags()``."""
    global _frozen
    _frozen = True


def flags_frozen():
    """Whether ``disable_global_flags`` was called."""
    return _frozen


class _Flags(contextlib.ContextDecorator):
    """A context with other settings, or a decorator."""

    def __init__(self, settings, values):
        self._settings, self._values = settings, values

    def _set(self, values):
        global _frozen
        frozen, _frozen = _frozen, False
        try:
            for name, value in values.items():
                setattr(self._settings, name, value)
        finally:
            _frozen = frozen

    def __enter__(self):
        self._before = {k: getattr(self._settings, k, None) for k in self._values}
        self._set(self._values)

    def __exit__(self, *exception):
        self._set(self._before)


class _Cuda(_Settings):
    _built = True


class _Cudnn(_Cuda):
    @property
    def allow_tf32(self):
        return _C._allow_tf32_conv()

    @allow_tf32.setter
    def allow_tf32(self, allow):
        _C._allow_tf32_conv(bool(allow))


class _Matmul(_Cuda):
    @property
    def allow_tf32(self):
        return _C._allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, allow):
        _C._allow_tf32(bool(allow))


class _Cpu(_Settings):
    def is_available(self):
        return True

    def get_cpu_capability(self):
        """The widest instruction set that kernels use, which ``RUSHLIGHT_CPU_ISA`` may lower."""
        return {"avx512": "AVX512", "avx2": "AVX2"}.get(_C._cpu_level(), "DEFAULT")


class _Mha(_Settings):
    """Whether layers of transformers may use a kernel of their own for inference: remembered, they have one way to compute."""

    _fast = [True]

    def get_fastpath_enabled(self):
        return self._fast[0]

    def set_fastpath_enabled(self, value):
        self._fast[0] = value


def _yes(*args):
    return True


def _no(*args):
    return False


def _accepted(*args):
    """Attention has one implementation for every kind of input."""


def _sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """A context without effect: attention has one implementation."""
    import contextlib

    return contextlib.nullcontext()


cudnn = _Cudnn("cudnn", enabled=True, benchmark=False, deterministic=False, benchmark_limit=10)
mps = _Settings("mps")
quantized = _Settings("quantized", engine="none", supported_engines=["none"])
mkl = _Settings("mkl")
cusparselt, kleidiai, miopen, nnpack = (_Settings(name) for name in ("cusparselt", "kleidiai", "miopen", "nnpack"))
mha = _Mha("mha")
mkldnn = _Settings("mkldnn", enabled=False)
openmp = _Settings("openmp")
opt_einsum = _Settings("opt_einsum", enabled=False, strategy=None)
cpu = _Cpu("cpu")
cuda = _Cuda(
    "cuda",
    matmul=_Matmul("cuda.matmul", fp32_precision="none", allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True),
    flash_sdp_enabled=_yes, mem_efficient_sdp_enabled=_yes, math_sdp_enabled=_yes, cudnn_sdp_enabled=_no, is_flash_attention_available=_no, is_ck_sdpa_available=_no,
    enable_flash_sdp=_accepted, enable_mem_efficient_sdp=_accepted, enable_math_sdp=_accepted, enable_cudnn_sdp=_accepted,
    preferred_linalg_library=_accepted, preferred_blas_library=_accepted, sdp_kernel=_sdp_kernel,
)
