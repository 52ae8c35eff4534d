"""``torch.backends``: settings that scripts make. They are remembered; products of float32 are always exact."""


class _Settings:
    """Named settings, any of which can be set."""

    def __init__(self, name, **settings):
        self.__dict__.update(settings, __name__=f"torch.backends.{name}")

    def is_available(self):
        return self.__dict__.get("_available", False)

    def is_built(self):
        return self.is_available()

    def version(self):
        return None

    def flags(self, **kwargs):
        return _Flags(self, kwargs)


class _Flags:
    """Settings for a block."""

    def __init__(self, settings, values):
        self._settings, self._values = settings, values

    def __enter__(self):
        self._before = {k: self._settings.__dict__.get(k) for k in self._values}
        self._settings.__dict__.update(self._values)

    def __exit__(self, *exception):
        self._settings.__dict__.update(self._before)


_yes = lambda *args: True
_no = lambda *args: False
cudnn = _Settings("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10)
mps = _Settings("mps")
mkl = _Settings("mkl")
mkldnn = _Settings("mkldnn", enabled=False)
openmp = _Settings("openmp")
opt_einsum = _Settings("opt_einsum", enabled=False, strategy=None)
cpu = _Settings("cpu")
cuda = _Settings(
    "cuda",
    matmul=_Settings("cuda.matmul", allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True),
    flash_sdp_enabled=_yes, mem_efficient_sdp_enabled=_yes, math_sdp_enabled=_yes, cudnn_sdp_enabled=_no,
    enable_flash_sdp=_no, enable_mem_efficient_sdp=_no, enable_math_sdp=_no, enable_cudnn_sdp=_no, preferred_linalg_library=_no,
)


def _capability():
    """The instruction set that kernels use."""
    return "AVX512"


cpu.get_cpu_capability = _capability
