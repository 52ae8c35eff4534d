"""Kernels of users: texts on a device that compiles them, functions elsewhere."""

import ctypes
import os

import pytest

import rushlight as torch
from rushlight.kernels import kernel

CUDA = """
extern "C" __global__ void blend(const float* x, const float* y, float* sum, float weight, long long shift, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) sum[i] = x[i] + weight * y[i] + shift;
}"""
OPENCL = """
__kernel void blend(__global const float* x, __global const float* y, __global float* sum, float weight, long shift, long n) {
    long i = get_global_id(0);
    if (i < n) sum[i] = x[i] + weight * y[i] + shift;
}"""
DEVICE = os.environ.get("RUSHLIGHT_TEST_DEVICE", "cpu")


def blend():
    return kernel(
        "blend",
        cuda=CUDA,
        opencl=OPENCL,
        cpu=lambda call: call.inputs[0] + call.inputs[1] * call.numbers[0] + call.numbers[1],
        backward=lambda call, outputs, grads: (grads[0], grads[0] * call.numbers[0]),
    )


def test_an_op_with_gradients():
    x = torch.arange(12.0).reshape(3, 4).to(DEVICE).requires_grad_()
    y = torch.arange(12.0).reshape(4, 3).t().to(DEVICE).requires_grad_()
    out = blend()(x, y, 0.5, 2)
    assert out.tolist() == (x + y * 0.5 + 2).tolist()
    (out * out).sum().backward()
    assert torch.allclose(x.grad, 2 * out) and torch.allclose(y.grad, out)


def test_gradcheck_of_a_function():
    cubed = kernel("cubed", cpu=lambda call: call.inputs[0] ** 3, backward=lambda call, outputs, grads: grads[0] * 3 * call.inputs[0] ** 2)
    assert torch.autograd.gradcheck(cubed, torch.tensor([1.0, -0.5], dtype=torch.float64, requires_grad=True))


def test_misuse_is_told():
    one = blend()
    x = torch.ones(2)
    with pytest.raises(TypeError, match="tensors come before numbers"):
        one(x, 1.0, x)
    with pytest.raises(ValueError, match="needs an input"):
        one(1.0)
    with pytest.raises(RuntimeError, match="no backward"):
        kernel("half", cpu=lambda call: call.inputs[0] / 2)(x.clone().requires_grad_())
    with pytest.raises(ValueError, match="neither a text nor a function"):
        kernel("nothing")
    with pytest.raises(ValueError, match="no name of a function"):
        kernel("a b", cuda="")
    if DEVICE == "cpu":
        with pytest.raises(RuntimeError, match="neither a text for cpu"):
            kernel("blend", cuda=CUDA)(x)


@pytest.mark.skipif(not DEVICE.startswith("cuda"), reason="no accelerator of NVIDIA or AMD")
def test_compile_kernel():
    # As in PyTorch: a text without `extern "C"`, integers as int, floats as double.
    text = """
__global__ void scaled(const float* x, float* y, double by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}"""
    scaled = torch.cuda._compile_kernel(text, "scaled")
    x = torch.arange(300.0, device="cuda")
    y = torch.empty_like(x)
    scaled(grid=(3, 1, 1), block=(128, 1, 1), args=[x, y, 0.5, x.numel()])
    assert torch.equal(y, x * 0.5)
    scaled(grid=(3, 1, 1), block=(128, 1, 1), args=[x, y, ctypes.c_double(2.0), 10])
    assert y[:10].tolist() == [2.0 * i for i in range(10)] and y[10].item() == 5.0
    with pytest.raises(ValueError, match="must be CUDA tensors"):
        scaled(args=[torch.ones(3), y, 0.5, 3])
    with pytest.raises(TypeError, match="Unsupported argument type"):
        scaled(args=["x"])
    with pytest.raises(RuntimeError, match="broken"):
        torch.cuda._compile_kernel('extern "C" __global__ void broken(int n) {\n    nonsense\n}', "broken")
