"""Rushlight: PyTorch's names over a training system in Rust. ``import rushlight as torch``.

The compiled part is ``rushlight._C``: the class ``Tensor`` with its methods, and the functions of ``torch``, ``torch.nn.functional``,
``torch.linalg`` and ``torch.special`` as tables. Packages that are slow to import are loaded on first use.
"""

from math import e, inf, nan, pi  # noqa: F401

from . import _C
from ._C import (  # noqa: F401
    Generator,
    OutOfMemoryError,
    Tensor,
    as_tensor,
    bfloat16,
    bool,
    can_cast,
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    double,
    dtype,
    float,
    float16,
    float32,
    float64,
    from_numpy,
    frombuffer,
    get_default_device,
    get_default_dtype,
    get_num_threads,
    get_rng_state,
    half,
    initial_seed,
    int,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    is_inference_mode_enabled,
    layout,
    long,
    memory_format,
    preserve_format,
    promote_types,
    seed,
    set_default_device,
    set_default_dtype,
    set_num_threads,
    set_printoptions,
    set_rng_state,
    short,
    strided,
    tensor,
    uint8,
)
from ._size import Size
from .torch_version import __version__

globals().update({_name: _function for _name, _function in vars(_C._torch).items() if not _name.startswith("_")})

from . import _layouts, _tensor  # noqa: E402,F401  (give Tensor the methods written in Python)
from ._functions import *  # noqa: E402,F401,F403
from ._functions import _missing  # noqa: E402
from ._complex_names import TORCH as _TORCH  # noqa: E402

globals().update(_TORCH)
from ._strided import *  # noqa: E402,F401,F403
from ._spectral import istft, stft  # noqa: E402,F401
from .autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402,F401

newaxis = None
globals().update({_name: getattr(_C, _name) for _name in (*_C._further_dtypes, "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")})

from . import _absent, _c_names, overrides  # noqa: E402,F401
from ._functions import __all__ as _written  # noqa: E402

for _reason, _names in _absent.FUNCTIONS.items():
    _absent.fill(globals(), "torch", _reason, _names)
overrides.make_overridable(globals(), set(_written) - {"compile", "is_tensor", "typename", "load", "save"})
_C._plain_types([Size])


def install():
    """From now on ``import torch``, ``torchvision``, ``torchaudio`` and ``intel_extension_for_pytorch`` give this package."""
    from ._install import install

    install()


#: Functions whose arguments are not those of ``nn.functional``'s of the same name.
_KERNEL_FORMS = (
    "adaptive_max_pool1d affine_grid_generator batch_norm binary_cross_entropy_with_logits convolution cosine_embedding_loss ctc_loss dropout_ embedding embedding_bag "
    "embedding_renorm_ frobenius_norm group_norm hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss max_pool1d_with_indices native_dropout "
    "norm_except_dim nuclear_norm poisson_nll_loss triplet_margin_loss"
).split()
for _name in _KERNEL_FORMS:
    globals().pop(_name, None)

#: Names whose modules are imported on first use.
_LAZY = {
    "capture": "_capture", "Stream": "_accelerator", "Event": "_accelerator", "Future": "futures", "ScriptModule": "jit", "ScriptFunction": "jit",
    "PyTorchFileReader": "_C", "PyTorchFileWriter": "_C", "Graph": "_C", "Value": "_C", "Tag": "_C", "DisableTorchFunctionSubclass": "overrides", "ops": "_ops", "classes": "_classes", "FunctionSchema": "_ops", "parse_schema": "_ops",
    "TypedStorage": "storage", "UntypedStorage": "storage", "pca_lowrank": "_lowrank", "svd_lowrank": "_lowrank", "vmap": "func",
    "cond": "_higher_order_ops", "while_loop": "_higher_order_ops",
    **dict.fromkeys(
        "_check _check_index _check_is_size _check_not_implemented _check_tensor_all _check_tensor_all_with _check_type _check_value _check_with "
        "_has_compatible_shallow_copy_type".split(), "_checks"
    ),
    **dict.fromkeys(("_dirichlet_grad", "_sample_dirichlet", "_standard_gamma", "_standard_gamma_grad", "binomial"), "distributions._implicit"),
    **dict.fromkeys(
        "dsmm hsmm hspmm saddmm smm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor spmm sspaddmm _sparse_broadcast_to _validate_sparse_coo_tensor_args "
        "_validate_sparse_compressed_tensor_args _validate_sparse_csr_tensor_args _validate_sparse_csc_tensor_args _sparse_compressed_tensor_with_dims _validate_compressed_sparse_indices _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo".split(),
        "sparse",
    ),
    "grid_sampler": "_native", "grid_sampler_2d": "_native", "grid_sampler_3d": "_native", "lu": "_native", "native_batch_norm": "_native",
    "_unsafe_masked_index": "_native", "_unsafe_masked_index_put_accumulate": "_native", "native_dropout_backward": "_native", "native_group_norm": "_native", "native_layer_norm": "_native",
    **dict.fromkeys(_KERNEL_FORMS, "_kernel_forms"),
}

#: Packages that are imported on first use.
_PACKAGES = frozenset(
    "_VF __config__ __future__ _dynamo _functorch _higher_order_ops _inductor _ops _prims _prims_common _tensor_str _utils _utils_internal _vmap_internals accelerator amp audio autograd backends compiler cpu cuda distributed distributions export fft func functional futures fx hub jit library linalg masked mps "
    "multiprocessing nested nn numa onnx optim overrides profiler quasirandom random return_types serialization signal sparse special storage testing types utils version vision xpu".split()
) | _absent.PACKAGES


def __getattr__(name):
    if name in _PACKAGES:
        import importlib

        try:
            return importlib.import_module("." + name, __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    if name == "torch":
        import sys

        return sys.modules[__name__]
    if name.startswith("_foreach_"):
        from . import _foreach

        if name in _foreach.__all__:
            globals()[name] = found = getattr(_foreach, name)
            return found
    if name in _LAZY:
        import importlib

        globals()[name] = found = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
        return found
    if not name.startswith("__"):
        from ._aliases import NAMES, find

        if name in NAMES:
            globals()[name] = found = find(name)
            return found
        if name.startswith("_"):
            from ._aten import ATEN

            if name in ATEN:
                globals()[name] = found = ATEN[name]
                return found
    return _missing(__name__, name)


def _warn_of_variables():
    """Says which ``RUSHLIGHT_…`` variables nothing reads: a misspelt one would be without effect and without a word."""
    import warnings

    for text in _C._unread_variables():
        warnings.warn(text, stacklevel=3)


_warn_of_variables()


def __dir__():
    from ._aliases import NAMES

    return sorted(set(globals()) | _PACKAGES | set(_LAZY) | NAMES)
