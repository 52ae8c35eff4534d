"""Extensions in C++: compiled by the system's compiler, they share tensors and autograd with Python."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight.utils import cpp_extension

HERE = pathlib.Path(__file__).resolve().parent
_buildable = shutil.which("c++") and cpp_extension._pybind11_include() is not None and cpp_extension._python_includes()
needs_compiler = pytest.mark.skipif(not _buildable, reason="no C++ compiler, pybind11 or headers of Python")


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    return cpp_extension.load("rushlight_cell", [HERE / "cpp" / "cell.cpp"], build_directory=tmp_path_factory.mktemp("cell"), extra_cflags=["-O1", "-Wall", "-Werror"])


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ops")
    return cpp_extension.load("rushlight_ops", HERE / "cpp" / "ops.cpp", build_directory=folder, extra_cflags=["-O0", "-Wall", "-Werror"], is_python_module=False)


def plain_cell(x, weights, bias, h, c):
    gates = torch.nn.functional.linear(torch.cat([h, x], 1), weights, bias)
    i, o, candidate = gates.chunk(3, 1)
    c = c + torch.nn.functional.elu(candidate) * torch.sigmoid(i)
    return torch.tanh(c) * torch.sigmoid(o), c


@needs_compiler
def test_a_cell_in_cpp_equals_python(cell):
    class Cell(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weights, bias, h, c):
            new_h, new_c, *rest = cell.forward(x, weights, bias, h, c)
            ctx.save_for_backward(new_c, *rest, weights)
            return new_h, new_c

        @staticmethod
        def backward(ctx, grad_h, grad_c):
            d_h, d_x, d_weights, d_bias, d_c = cell.backward(grad_h.contiguous(), grad_c.contiguous(), *ctx.saved_tensors)
            return d_x, d_weights, d_bias.reshape(-1), d_h, d_c

    torch.manual_seed(0)
    inputs = [torch.randn(*size, dtype=torch.float64) for size in ((4, 5), (21, 12), (21,), (4, 7), (4, 7))]
    found = []
    for function in (Cell.apply, plain_cell):
        leaves = [t.clone().requires_grad_() for t in inputs]
        h, c = function(*leaves)
        (h.sin().sum() + (c * c).sum()).backward()
        found.append([h, c, *(leaf.grad for leaf in leaves)])
    for ours, plain in zip(*found):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@needs_compiler
def test_tensors_are_the_same_on_both_sides(cell):
    x = torch.arange(6.0)
    assert cell.same(x) is x
    cell.fill_(x[1:3], value=7.0)
    assert x.tolist() == [0, 7, 7, 3, 4, 5]
    # Ops in C++ are recorded on Python's graph, and functions of C++ have their own backward.
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    (cell.cube(w) * 2).sum().backward()
    assert w.grad.tolist() == [6.0, 24.0]
    assert cell.maybe(w).grad_fn is not None and cell.maybe(None) is None
    assert cell.squares_grad(torch.tensor([1.0, 3.0])).tolist() == [2.0, 6.0]
    with torch.no_grad():
        assert not cell.maybe(w).requires_grad


@needs_compiler
def test_values_and_errors_cross(cell):
    made = cell.zeros([2, 3], torch.float16, torch.device("cpu"))
    assert made.shape == (2, 3) and made.dtype == torch.float16
    assert cell.describe(torch.tensor([[1, 2], [3, 4]])) == (torch.int64, torch.device("cpu"), [2, 2], 10)
    for dtype in (torch.float32, torch.float64, torch.int32, torch.float16, torch.bfloat16):
        x = torch.arange(3000).to(dtype)
        assert torch.equal(cell.scaled(x, 2), x * 2)
    with pytest.raises(RuntimeError, match='"scaled" not implemented for \'Bool\''):
        cell.scaled(torch.tensor([True]), 2)
    with pytest.raises(RuntimeError, match="invalid for input of size 4"):
        cell.fails(torch.zeros(4))
    with pytest.raises(TypeError, match="torch.Tensor"):
        cell.same(3)
    torch.set_default_dtype(torch.float64)
    try:
        assert cell.one().dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@needs_compiler
def test_load_compiles_only_what_changed(tmp_path):
    source = tmp_path / "one.cpp"
    source.write_text('#include <pybind11/pybind11.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", [](int x) { return x + ADDED; }); }\n')
    make = lambda added: cpp_extension.load("rushlight_one", str(source), extra_cflags=["-O0", f"-DADDED={added}"], build_directory=tmp_path)  # noqa: E731
    first = make(1)
    built = (tmp_path / "one.0.o").stat().st_mtime_ns
    assert first.f(0) == 1 and make(1) is first and (tmp_path / "one.0.o").stat().st_mtime_ns == built
    second = make(2)
    assert second.f(0) == 2 and first.f(0) == 1 and (tmp_path / "one.0.o").stat().st_mtime_ns != built
    source.write_text("not C++")
    with pytest.raises(RuntimeError, match="Error building extension 'rushlight_one"):
        make(3)


@needs_compiler
def test_load_inline(tmp_path):
    source = "torch::Tensor sine_add(torch::Tensor x, torch::Tensor y) { return x.sin() + y.sin(); }"
    module = cpp_extension.load_inline("rushlight_inline", source, functions={"sine_add": 'the sum of "sines"'}, extra_cflags="-O0", build_directory=tmp_path)
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    y = module.sine_add(x, torch.zeros(2))
    y.sum().backward()
    assert torch.equal(y, x.sin()) and torch.equal(x.grad, x.cos()) and '"sines"' in module.sine_add.__doc__


@needs_compiler
def test_ops_of_a_library(library):
    ops = torch.ops.rushlight_test
    assert library in torch.ops.loaded_libraries
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])
    out = ops.scale_add(x, y, alpha=3)
    assert out.tolist() == [6.0, 10.0]
    out.sum().backward()
    # The derivative of the library, which doubles.
    assert x.grad.tolist() == [6.0, 6.0]
    assert ops.scale_add.default(x, y).tolist() == [4.0, 6.0] and ops.scale_add.overloads() == ["default"]
    total, length = ops.split_sum([torch.ones(2, 3), torch.ones(2, 3)], 0.5, [0, 1], name="four", negate=True)
    assert total.item() == -6.0 and length == 4
    assert ops.split_sum((y,))[0].item() == 7.0
    z = torch.zeros(2)
    assert ops.add_one_(z) is None and z.tolist() == [1.0, 1.0]
    assert ops.double_it(y).tolist() == [6.0, 8.0]
    with pytest.raises(RuntimeError, match="expected 7 dimensions, got 1"):
        ops.fails(y)
    with pytest.raises(RuntimeError, match="argument 'x': expected Tensor, got int"):
        ops.scale_add(1, y)
    with pytest.raises(RuntimeError, match="missing value for argument 'y'"):
        ops.scale_add(x)
    with pytest.raises(NotImplementedError, match="has kernels for"):
        ops.scale_add(torch.empty(2, device="meta"), torch.empty(2, device="meta"))
    with pytest.raises(AttributeError, match="other"):
        ops.other
    with pytest.raises(AttributeError, match="overload"):
        ops.double_it.out


@needs_compiler
def test_python_adds_to_ops_of_a_library(library):
    @torch.library.register_fake("rushlight_test::double_it")
    def _(x):
        return torch.empty_like(x)

    assert torch.ops.rushlight_test.double_it(torch.empty(3, device="meta")).shape == (3,)


@needs_compiler
def test_models_with_ops_of_a_library_are_exported(library, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.ops.rushlight_test.double_it(x.relu()) + 1

    x = torch.randn(3, 4)
    program = torch.export.export(Model(), (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2")
    assert torch.equal(loaded.module()(x), x.relu() * 2 + 1)


@needs_compiler
def test_a_package_with_an_extension(tmp_path):
    pytest.importorskip("setuptools")
    (tmp_path / "one.cpp").write_text("#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def(\"twice\", [](torch::Tensor x) { return x * 2; }); }\n")
    (tmp_path / "setup.py").write_text(
        "import rushlight\nfrom setuptools import setup\nfrom rushlight.utils.cpp_extension import BuildExtension, CppExtension\n"
        "setup(name='one', ext_modules=[CppExtension('rushlight_packaged', ['one.cpp'], extra_compile_args={'cxx': ['-O0']})],\n"
        "      cmdclass={'build_ext': BuildExtension.with_options(no_python_abi_suffix=True)})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(torch.__file__).parents[1])}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path, check=True, env=environment, capture_output=True)
    assert (tmp_path / "rushlight_packaged.so").exists()
    code = "import rushlight as torch, rushlight_packaged\nassert rushlight_packaged.twice(torch.ones(2)).tolist() == [2.0, 2.0]"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)


@needs_compiler
def test_programs_of_the_page(tmp_path, monkeypatch):
    page = (HERE.parents[2] / "docs/book/src/cpp.md").read_text(encoding="utf-8")
    programs = [found.replace("import torch", "import rushlight as torch").replace("from torch", "from rushlight") for found in re.findall(r"^```py\n(.*?)^```", page, re.M | re.S)]
    (tmp_path / "mine.cpp").write_text(next(p for p in re.findall(r"^```cpp\n(.*?)^```", page, re.M | re.S) if "TORCH_LIBRARY" in p))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found = {"torch": torch}
    exec(programs[0], found)
    assert torch.allclose(found["x"].grad, 2 * torch.ones(3).cos())
    built = cpp_extension.load("libmine", tmp_path / "mine.cpp", build_directory=tmp_path, extra_cflags=["-O0", "-Wall", "-Werror"], is_python_module=False)
    assert pathlib.Path(built) == tmp_path / "libmine.so"
    found["x"] = torch.ones(3)
    exec(programs[1], found)
    assert torch.ops.mine.scale(torch.ones(3), by=3).tolist() == [3.0] * 3


def test_what_is_not_supported_says_so(tmp_path):
    with pytest.raises(NotImplementedError, match="kernel for a GPU"):
        cpp_extension.load("x", ["a.cu"])
    with pytest.raises(NotImplementedError, match="GPUs"):
        cpp_extension.load_inline("x", "", cuda_sources="x")
    with pytest.raises(NotImplementedError, match="CppExtension"):
        cpp_extension.CUDAExtension("x", [])
    with pytest.raises(ValueError, match="Python name"):
        cpp_extension.load("not a name", ["a.cpp"])
    with pytest.raises(OSError, match="Could not load this library"):
        torch.ops.load_library(tmp_path / "none.so")
    assert cpp_extension.get_cxx_compiler() and cpp_extension.library_paths()
