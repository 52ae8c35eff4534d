"""Kernels of one's own: a text for GPUs, a function for the CPU, a backward. No PyTorch counterpart; see also `torch.cuda._compile_kernel`."""

import ctypes
import re

from . import _C
from .autograd import Function

__all__ = ["Kernel", "kernel"]

_C_TYPES = {ctypes.c_int: "int", ctypes.c_long: "long", ctypes.c_longlong: "long", ctypes.c_float: "float", ctypes.c_double: "double"}


def _number(value, integer, real):
    """A number with its type in C: of ctypes its own, of Python `integer` or `real`."""
    if type(value) in _C_TYPES:
        return value.value, _C_TYPES[type(value)]
    if isinstance(value, (bool, int)):
        return int(value), integer
    if isinstance(value, float):
        return value, real
    raise TypeError(f"Unsupported argument type: {type(value)}")


class Call:
    """What a kernel was called with: `inputs`, a tuple of tensors, and `numbers`."""

    def __init__(self, inputs, numbers):
        self.inputs, self.numbers = inputs, numbers


class _Recorded(Function):
    @staticmethod
    def forward(ctx, kernel, numbers, *inputs):
        outputs = kernel._run(Call(inputs, numbers))
        ctx.kernel, ctx.numbers, ctx.count = kernel, numbers, len(inputs)
        ctx.save_for_backward(*inputs, *outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    @staticmethod
    def backward(ctx, *grads):
        inputs, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        found = ctx.kernel._backward(Call(inputs, ctx.numbers), outputs, grads)
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(inputs):
            raise RuntimeError(f"kernel {ctx.kernel.name}: its backward gives {len(found)} gradients for {len(inputs)} inputs")
        return None, None, *found


class Kernel:
    """An op of one's own, called with tensors and then numbers.

    ``cuda``, ``hip`` (``cuda`` if it is left out) and ``opencl`` are texts with an entry point ``name``, whose parameters are pointers to the inputs, pointers
    to the outputs, the numbers (of Python an ``int`` is ``long long``, in OpenCL ``long``, and a ``float`` is ``float``; of ctypes their own type), and
    at last the number of elements of the first output (``long long``). ``cpu(call)`` gives the outputs where there is no text. ``backward(call, outputs, grads)``
    gives a gradient for each input. ``outputs(call)`` gives shapes and dtypes of the outputs, by default one like the first input; ``threads(call, outputs)`` the number of
    threads, by default one for each element of the first output.
    """

    def __init__(self, name, *, cuda=None, hip=None, opencl=None, cpu=None, backward=None, outputs=None, threads=None, block=256):
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"kernel: {name!r} is no name of a function in C")
        if cuda is None and hip is None and opencl is None and cpu is None:
            raise ValueError(f"kernel {name}: it has neither a text nor a function for the CPU")
        self.name = name
        self._texts = {"cuda": cuda, "hip": hip if hip is not None else cuda, "opencl": opencl}
        self._cpu, self._backward, self._outputs, self._threads, self._block = cpu, backward, outputs, threads, block
        self._compiled = {}

    def __repr__(self):
        return f"Kernel({self.name!r})"

    def __call__(self, *args):
        count = next((i for i, arg in enumerate(args) if not isinstance(arg, _C.Tensor)), len(args))
        inputs, numbers = args[:count], args[count:]
        if not inputs:
            raise ValueError(f"kernel {self.name}: it needs an input, whose device it runs on")
        if any(isinstance(arg, _C.Tensor) for arg in numbers):
            raise TypeError(f"kernel {self.name}: tensors come before numbers")
        if any(t.device != inputs[0].device for t in inputs):
            raise RuntimeError(f"kernel {self.name}: inputs are on {sorted({str(t.device) for t in inputs})}; they must be on one device")
        if self._backward is None and _C.is_grad_enabled() and any(t.requires_grad for t in inputs):
            raise RuntimeError(f"kernel {self.name}: an input requires a gradient, and it has no backward; give it one, or call it under no_grad")
        return _Recorded.apply(self, numbers, *inputs)

    def _run(self, call):
        from . import empty

        device = call.inputs[0].device
        language = _C._kernel_language(device)
        text = self._texts[language] if language else None
        if text is None:
            if self._cpu is None:
                raise RuntimeError(f"kernel {self.name}: it has neither a text for {device} nor a function for the CPU")
            found = self._cpu(call)
            return tuple(t.to(device) for t in (found if isinstance(found, (tuple, list)) else (found,)))
        inputs = [t.detach().contiguous() for t in call.inputs]
        specs = self._outputs(call) if self._outputs else [(inputs[0].shape, inputs[0].dtype)]
        outputs = tuple(empty(shape, dtype=dtype, device=device) for shape, dtype in specs)
        threads = self._threads(call, outputs) if self._threads else outputs[0].numel()
        if device not in self._compiled:
            self._compiled[device] = _C._Kernel(device, text, self.name)
        numbers = [_number(value, "long", "float") for value in call.numbers]
        args = [*inputs, *outputs, *numbers, (outputs[0].numel(), "long")]
        self._compiled[device].launch([-(-threads // self._block), 1, 1], [self._block, 1, 1], 0, args)
        return outputs


def kernel(name, **parts):
    """A `Kernel`."""
    return Kernel(name, **parts)


def compile_kernel(kernel_source, kernel_name, compute_capability=None, cuda_include_dirs=None, nvcc_options=None):
    """Compiles a CUDA kernel for the current GPU; see ``torch.cuda._compile_kernel``. With AMD's GPU the text is compiled as HIP."""
    from . import cuda

    for name, value in (("compute_capability", compute_capability), ("cuda_include_dirs", cuda_include_dirs), ("nvcc_options", nvcc_options)):
        if value:
            raise NotImplementedError(f"_compile_kernel: {name} is not supported: a text is compiled for the current GPU, without headers")
    if 'extern "C"' not in kernel_source:
        kernel_source = re.sub(rf"__global__(?=[^;{{}}]*\b{kernel_name}\s*\()", 'extern "C" __global__', kernel_source, count=1)
    return _CudaKernel(_C._Kernel(f"cuda:{cuda.current_device()}", kernel_source, kernel_name))


class _CudaKernel:
    """A compiled kernel, called with a grid, a block and arguments: tensors, integers (``int``) and floats (``double``)."""

    def __init__(self, kernel):
        self._kernel = kernel
        self._max_shared_mem_bytes = 0

    def __call__(self, grid=(1, 1, 1), block=(1, 1, 1), args=None, shared_mem=0, stream=None):
        from . import cuda

        if shared_mem >= 48 * 1024 and shared_mem > self._max_shared_mem_bytes:
            configured = f"only {self._max_shared_mem_bytes} bytes configured" if self._max_shared_mem_bytes else "not configured"
            raise RuntimeError(
                f"Kernel requires {shared_mem} bytes of shared memory (>= 48KB), but {configured}. "
                "Call kernel.set_shared_memory_config(shared_mem) after compilation and before launching the kernel."
            )
        given = [arg if isinstance(arg, _C.Tensor) else _number(arg, "int", "double") for arg in args or []]
        if any(isinstance(arg, _C.Tensor) and not arg.is_cuda and not arg.is_pinned() for arg in given):
            raise ValueError("All tensor arguments must be CUDA tensors or pinned CPU tensors")
        with cuda.stream(stream):
            self._kernel.launch(list(grid), list(block), shared_mem, given)

    def set_shared_memory_config(self, shared_mem_bytes):
        self._max_shared_mem_bytes = shared_mem_bytes
