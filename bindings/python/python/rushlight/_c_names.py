"""Names of ``torch._C`` that public libraries read, added to the compiled module."""

import enum
import functools
import importlib
import importlib.machinery
import sys
import types

from . import _C, _absent, _dispatch, _settings, overrides
from .overrides import DisableTorchFunction, DisableTorchFunctionSubclass

_JIT = "TorchScript is not supported; models run as they are"


def _nothing(*args, **kwargs):
    """A setting of a compiler that does not exist here."""


def _no(*args, **kwargs):
    """Whether there is such a feature: always False."""
    return False


class _TorchFunctionState(enum.IntEnum):
    """Which overrides are enabled; the numbers are the compiled module's."""

    ALL_DISABLED = 0
    DISABLED = 1
    ENABLED = 2


def _get_torch_function_state():
    return _TorchFunctionState(0 if _C._is_torch_function_all_disabled() else 2 if _C._is_torch_function_enabled() else 1)


def _set_torch_function_state(state):
    _C._set_function_level(int(state))


def _pop_torch_function_stack():
    mode = overrides._modes.stack.pop()
    _C._set_function_modes(len(overrides._modes.stack))
    return mode


def _push_on_torch_function_stack(mode):
    overrides._modes.stack.append(mode)
    _C._set_function_modes(len(overrides._modes.stack))


class _DisableFuncTorch:
    """A context without transformations of functions: ``torch.func`` does not change how ops run."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


#: Marks of ops, for compilers; ``torch.library`` accepts them, and nothing here depends on them.
Tag = enum.Enum(
    "Tag",
    "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace_view maybe_aliasing_or_mutating "
    "needs_contiguous_strides needs_exact_strides needs_fixed_stride_order nondeterministic_bitwise nondeterministic_seeded out_variant pointwise "
    "pt2_compliant_tag reduction view_copy",
    module=_C.__name__,
)


def _get_cpu_capability():
    from .backends import cpu

    return cpu.get_cpu_capability()


_NAMES = {
    "_TorchFunctionState": _TorchFunctionState,
    "_get_torch_function_state": _get_torch_function_state,
    "_set_torch_function_state": _set_torch_function_state,
    "_len_torch_function_stack": lambda: len(overrides._modes.stack),
    "_get_function_stack_at": lambda at: overrides._modes.stack[at],
    "_pop_torch_function_stack": _pop_torch_function_stack,
    "_push_on_torch_function_stack": _push_on_torch_function_stack,
    "_get_cpu_capability": _get_cpu_capability,
    "_get_deterministic_fill_uninitialized_memory": lambda: _settings.fills_fresh_memory(),
    "_set_deterministic_fill_uninitialized_memory": lambda mode: _settings.fill_fresh_memory(mode),
    "Tag": Tag,
    "_DisableFuncTorch": _DisableFuncTorch,
    "has_lapack": True,
    "has_spectral": True,
    "DisableTorchFunction": DisableTorchFunction,
    "DisableTorchFunctionSubclass": DisableTorchFunctionSubclass,
    "TensorBase": _C.Tensor,
    "_TensorBase": _C.Tensor,
    "_TensorMeta": type(_C.Tensor),
    "_has_cuda": False,
    "_has_mps": False,
    "_is_cow_tensor": lambda tensor: False,
    "_get_privateuse1_backend_name": lambda: "privateuseone",
    "_has_torch_function_unary": lambda tensor: _C._has_torch_function((tensor,)),
    "_has_torch_function_variadic": lambda *tensors: _C._has_torch_function(tensors),
    "_is_torch_function_mode_enabled": lambda: bool(_C._has_torch_function(())),
}
_NAMES.update(dict.fromkeys(
    "_log_api_usage_once _log_api_usage_metadata _jit_set_profiling_executor _jit_set_profiling_mode _jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu "
    "_jit_set_texpr_fuser_enabled _jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode _jit_set_nvfuser_single_node_mode _jit_set_nvfuser_horizontal_mode "
    "_debug_set_autodiff_subgraph_inlining _set_graph_executor_optimize _cuda_clearCublasWorkspaces _cuda_resetCublasWorkspaceSize "
    # Sums of float16 are always of float32; the permission to be less exact is not used.
    "_set_cpu_allow_fp16_reduced_precision_reduction".split(),
    _nothing,
))
_NAMES.update(dict.fromkeys(
    "_cuda_isInBadFork _jit_can_fuse_on_cpu _jit_can_fuse_on_gpu _jit_texpr_fuser_enabled _jit_nvfuser_enabled _is_xnnpack_enabled "
    "_get_cpu_allow_fp16_reduced_precision_reduction _has_mkldnn has_mkl _is_functorch_wrapped_tensor".split(),
    _no,
))


#: The cache of compiled frames: there are none.
_NAMES["_dynamo"] = types.SimpleNamespace(eval_frame=types.SimpleNamespace(_set_lru_cache=_nothing))


def _get_tracing_state():
    from .jit._traced_graph import tracing_state

    return tracing_state()


_NAMES.update({"_get_tracing_state": _get_tracing_state, "_is_tracing": lambda: _get_tracing_state() is not None})


@functools.lru_cache(None)
def _autograd_internals():
    from . import _autograd_internals

    return _autograd_internals.modules()


class _Module(types.ModuleType):
    """The compiled module; what needs a driver is looked up when it is read."""

    @property
    def _has_xpu(self):
        return self._accelerator_type() == "xpu"

    @property
    def FunctionSchema(self):
        return importlib.import_module("._ops", __package__).FunctionSchema

    @property
    def parse_schema(self):
        return importlib.import_module("._ops", __package__).parse_schema

    @property
    def _functions(self):
        return _autograd_internals()["_functions"]

    @property
    def _autograd(self):
        return _autograd_internals()["_autograd"]


_C.__class__ = _Module
for _name, _value in _NAMES.items():
    if not hasattr(_C, _name):
        setattr(_C, _name, _value)
_absent.fill(vars(_C), "torch._C", _JIT, "CompilationUnit FileCheck Graph JitType Node PyTorchFileReader PyTorchFileWriter ScriptFunction ScriptModule Type Value")
_absent.fill(vars(_C), "torch._C", _JIT, "BoolType DeviceObjType DictType FloatType IntType ListType NoneType NumberType OptionalType StringType TensorType TupleType")
_absent.fill(
    vars(_C), "torch._C", "Triton's kernels run on PyTorch's own streams; write the op with torch.library.custom_op, or with ops of torch", "_cuda_getCurrentRawStream"
)
_C._DisableTorchDispatch, _C._disabled_torch_dispatch_impl = _dispatch.disabled, _C.Tensor.__torch_dispatch__


def _part(name, home):
    """A module below the compiled one, whose names are those of a module here, loaded on first use."""
    made = types.ModuleType(f"{_C.__name__}.{name}", f"``torch._C.{name}``.")
    made.__spec__ = importlib.machinery.ModuleSpec(made.__name__, None)

    def find(wanted):
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return getattr(importlib.import_module(home, __package__), wanted)

    made.__getattr__ = find
    sys.modules[made.__name__] = made
    setattr(_C, name, made)


class _Functions(type):
    def __getattr__(cls, name):
        return getattr(_C._torch, name)


class _VariableFunctionsClass(metaclass=_Functions):
    """The functions of ``torch``: PyTorch's pickles name them by this class."""

    __module__ = _C.__name__

    def __getattr__(self, name):
        return getattr(_C._torch, name)


_C._VariableFunctionsClass, _C._VariableFunctions = _VariableFunctionsClass, _VariableFunctionsClass()

# Statements `from torch._C._functorch import …` ask for a package.
_C.__path__ = []
_part("_functorch", "._functorch_c")
_part("_cpu", ".cpu")
_part("_distributed_c10d", ".distributed.distributed_c10d")


class _Switch:
    """A setting that PyTorch's own tests turn on and off. There is nothing here for it to change; it is only remembered."""

    def __init__(self, value):
        self.value = value

    def read(self):
        return self.value

    def write(self, value):
        self.value = value


_warnings = _Switch(False)
_C._debug_only_are_vmap_fallback_warnings_enabled, _C._debug_only_display_vmap_fallback_warnings = _warnings.read, _warnings.write
#: Checked by libraries before they use remote procedure calls.
_C._distributed_rpc = types.SimpleNamespace(_is_current_rpc_agent_set=_no)



def _prefixed(module, prefix):
    """Lets a compiled module's functions be found by PyTorch's longer names, such as ``linalg_inv``."""

    def find(name):
        if name.startswith(prefix) and not name.startswith("__"):
            return getattr(importlib.import_module(f".{prefix[:-1]}", __package__), name[len(prefix):])
        raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'")

    module.__getattr__ = find


_prefixed(_C._linalg, "linalg_")
_prefixed(_C._special, "special_")
if not hasattr(_C, "_fft"):
    _C._fft = types.ModuleType(f"{_C.__name__}._fft", "``torch._C._fft``.")
_prefixed(_C._fft, "fft_")
sys.modules.setdefault(f"{_C.__name__}._fft", _C._fft)



def _layers(name):
    """Ops of layers that ``torch._C._nn`` has under their names in ``aten``."""
    from . import _aten, _utils

    if name in ("flatten_dense_tensors", "unflatten_dense_tensors"):
        return getattr(_utils, f"_{name}")
    if name.startswith("__") or name not in _aten.ATEN:
        raise AttributeError(f"module 'torch._C._nn' has no attribute '{name}'")
    return _aten.ATEN[name]


_C._nn.__getattr__ = _layers

# Functions are pickled by their module's name.
sys.modules.update({module.__name__: module for module in (_C._torch, _C._nn, _C._linalg, _C._special)})


def _parse_to(*args, **kwargs):
    """``_parse_to(*args, **kwargs)``: the arguments of ``Module.to`` as device, dtype, whether not to wait, memory format."""

    def read(tensor=None, device=None, dtype=None, non_blocking=False, memory_format=None):
        return tensor, device, dtype, non_blocking, memory_format

    first = args[0] if args else None
    if isinstance(first, _C.Tensor):
        args = (None, first.device, first.dtype, *args[1:])
    elif isinstance(first, _C.dtype):
        args = (None, None, *args)
    else:
        args = (None, *args)
    _, device, dtype, non_blocking, memory_format = read(*args, **{k: v for k, v in kwargs.items() if k != "tensor"})
    if "tensor" in kwargs:
        device, dtype = kwargs["tensor"].device, kwargs["tensor"].dtype
    return None if device is None else _C.device(device), dtype, non_blocking, memory_format


_C._nn._parse_to = _parse_to
