"""The ``>>>`` examples of PyTorch's own docstrings, run by PyTorch and by Rushlight in one process.

    python tests/differential/docstrings.py [--least 0.95] [--only NAME]      with a Python that has torch; the extension built

Examples are read from the installed PyTorch when this runs. An example counts if PyTorch runs all of it and it needs no complex numbers,
which Rushlight lacks; those that do are counted separately. It agrees if each of its statements
leaves equal values, or raises the same class, with Rushlight. Random numbers that an example asks for are made by PyTorch for both; of values
that differ between two runs of PyTorch, such as those of layers with random weights, dtypes and shapes are compared.
"""

import argparse
import collections
import contextlib
import doctest
import inspect
import io
import pathlib
import os
import signal
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bindings" / "python" / "python")]

import torch  # noqa: E402

import evaluate  # noqa: E402
import rushlight as ours  # noqa: E402

#: PyTorch's names, and Rushlight's.
MODULES = ["torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.linalg", "torch.special", "torch.autograd", "torch.optim"]
MODULES += ["torch.optim.lr_scheduler", "torch.nn.init", "torch.nn.utils", "torch.utils.data", "torch.func"]
#: Words of examples that need missing hardware, or that block.
SKIP = ("cuda", "xpu", "mps", "distributed", "compile", "open(", "xdoctest: +SKIP", "download", "sparse", "quantiz", "onnx", "jit", "input(")
RANDOM = ["rand", "randn", "randint", "randperm", "rand_like", "randn_like", "normal", "bernoulli", "empty", "empty_like", "multinomial"]
SECONDS = 10


def resolve(root, name):
    for part in name.split(".")[1:]:
        root = getattr(root, part)
    return root


def examples():
    """(name, statements) of every docstring with examples."""
    seen, parser = set(), doctest.DocTestParser()
    for name in MODULES:
        module = resolve(torch, name)
        for attribute in sorted(dir(module)):
            if attribute.startswith("_"):
                continue
            doc = inspect.getdoc(getattr(module, attribute, None)) or ""
            if ">>>" not in doc or doc in seen or any(word in doc for word in SKIP):
                continue
            seen.add(doc)
            try:
                found = [e.source for e in parser.get_examples(doc)]
            except ValueError:
                continue
            if found:
                yield f"{name}.{attribute}", found


def convert(value, lib):
    """PyTorch's tensors as tensors of ``lib``."""
    if lib is torch or not isinstance(value, torch.Tensor):
        return value
    made = ours.tensor(value.detach().to(torch.float64 if value.dtype.is_floating_point else value.dtype).tolist())
    made = made.reshape(tuple(value.shape)).to(getattr(ours, str(value.dtype)[6:]))
    if not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last):
        made = made.contiguous(memory_format=ours.channels_last)
    return made.requires_grad_() if value.requires_grad else made


class Names(dict):
    """The names that examples can use: ``torch`` and names that their text assumes."""

    def __init__(self, lib):
        super().__init__(torch=lib, nn=lib.nn, F=lib.nn.functional, optim=lib.optim, math=__import__("math"), np=__import__("numpy"))
        self["Tensor"], self["linalg"] = lib.Tensor, lib.linalg
        self["__name__"] = "example"


@contextlib.contextmanager
def same_random_numbers(lib, known):
    """Random functions that record their results, or replay recorded ones."""
    kept, queue = [], None if known is None else collections.deque(known)
    try:
        for name in RANDOM:
            original = getattr(lib, name)

            def call(*args, _original=original, **kwargs):
                result = _original(*args, **kwargs)
                if sys._getframe(1).f_globals.get("__name__") != "example":
                    return result
                if queue is None:
                    noted.append(result.detach().clone())
                    return result
                if queue and tuple(queue[0].shape) == tuple(result.shape):
                    # A copy: examples change what they are given, and a later run needs the same numbers.
                    given = convert(queue.popleft(), lib).to(result.dtype).clone().detach()
                    return given.requires_grad_() if result.requires_grad else given
                return result

            kept.append((name, original))
            setattr(lib, name, call)
        noted = []
        yield noted
    finally:
        for name, original in kept:
            setattr(lib, name, original)


class Late(BaseException):
    """An example that is too large for a test."""


def run(statements, lib, noted=None, seed=0):
    """The exception, the value and the names after each statement; and the random numbers that were made."""
    names, out = Names(lib), []
    lib.manual_seed(seed)
    silent = contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings()
    with same_random_numbers(lib, noted) as record, silent[0], silent[1]:
        warnings.simplefilter("ignore")
        for source in statements:
            error, value = None, None
            try:
                code = compile(source, "example", "eval")
            except SyntaxError:
                error = evaluate.outcome(source, names)
            else:
                try:
                    value = eval(code, names)
                except Exception as raised:
                    error = raised
            out.append((error, value, dict(names)))
    return out, record


def compare(statements):
    theirs, noted = run(statements, torch)
    again, _ = run(statements, torch, noted, seed=1)
    if any(isinstance(error, (NameError, ImportError, ModuleNotFoundError, SyntaxError, FileNotFoundError)) for error, _, _ in theirs):
        return "skip"
    # Rushlight under PyTorch's name, for examples that import from it.
    saved = {n: m for n, m in sys.modules.items() if n == "torch" or n.startswith("torch.")}
    for n in saved:
        del sys.modules[n]
    for n, m in list(sys.modules.items()):
        if n == "rushlight" or n.startswith("rushlight."):
            sys.modules["torch" + n[len("rushlight"):]] = m
    try:
        mine, _ = run(statements, ours, noted)
    finally:
        for n in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
            del sys.modules[n]
        sys.modules.update(saved)
    for source, (e, v, _), (f, w, _), (_, second, _) in zip(statements, theirs, mine, again):
        line = source.strip().splitlines()[0][:100]
        if evaluate.class_of(e) != evaluate.class_of(f):
            return f"{evaluate.class_of(f)} for {evaluate.class_of(e)}: {line} ({str(f or e).splitlines()[0][:120] if str(f or e) else ''})"
        kind = evaluate.difference(v, w, torch, ours) if isinstance(v, (torch.Tensor, tuple, list, bool, int, float, str)) else None
        if kind and not (kind == "values" and evaluate.difference(v, second, torch, torch)):
            return f"{kind}: {line}"
    for name, a in theirs[-1][2].items():
        b, second = mine[-1][2].get(name), again[-1][2].get(name)
        kind = isinstance(a, torch.Tensor) and evaluate.difference(a, b, torch, ours)
        if kind and not ("values" in kind and evaluate.difference(a, second, torch, torch)):
            return f"{kind} of {name}"
    return None


def late(*_):
    raise Late


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=0.0, help="share of examples that must agree")
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Some examples write files.
    scratch = tempfile.TemporaryDirectory()
    os.chdir(scratch.name)
    signal.signal(signal.SIGALRM, late)
    agree, count, waiting = 0, 0, 0
    for name, statements in examples():
        if options.only not in name:
            continue
        signal.alarm(SECONDS)
        try:
            found = compare(statements)
        except Late:
            found = "skip"
        finally:
            signal.alarm(0)
            for lib in (torch, ours):
                lib.set_default_dtype(lib.float32)
                lib.set_grad_enabled(True)
        if found == "skip":
            continue
        if found and "complex" in found:
            waiting += 1
            continue
        count += 1
        agree += found is None
        if found:
            print(f"{name}: {found}", flush=True)
    print(f"{agree} of {count} docstring examples agree; {waiting} others need complex numbers")
    sys.exit(agree < options.least * count)


if __name__ == "__main__":
    main()
