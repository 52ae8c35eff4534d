"""Whatever is passed to any function: an exception or a result, never a crash. In a process of its own, with limited memory."""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent("""
    import random, resource, sys, warnings
    import rushlight as torch

    warnings.simplefilter("ignore")
    limit = 8 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    C, choose = torch._C, random.Random(int(sys.argv[1]))
    functions = [f for home in (C._torch, C._nn, C._linalg, C._special) for n, f in sorted(vars(home).items()) if not n.startswith("__")]
    skip = {"apply_", "map_", "share_memory_"}
    functions += [getattr(torch.Tensor, n) for n in sorted(dir(torch.Tensor)) if not n.startswith("_") and n not in skip]
    expected = (TypeError, RuntimeError, ValueError, IndexError, AttributeError, OverflowError, AssertionError, BufferError, MemoryError)

    def values():
        tensors = [
            torch.randn(3, 4), torch.randn(4), torch.randn(1, 2, 5, 5), torch.randn(0), torch.randn(2, 0, 3), torch.tensor(1.5), torch.arange(4),
            torch.tensor([True, False, True, True]), torch.randn(4, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.bfloat16),
            torch.randint(-3, 9, (3, 4)), torch.zeros(3, 4, dtype=torch.uint8), torch.randn(3, 4).T, torch.randn(4).expand(3, 4),
        ]
        others = [
            0, 1, 2, -1, 3, -5, 100, 2**31, -(2**63), 2**62, 2**70, 0.5, float("nan"), float("inf"), 1e300, True, None, "mean", "nope", (), (1,),
            (2, 2), (0, 1), (-1,), [1, 2, 3], (2**40, 2**40), [torch.randn(2), torch.randn(2)], torch.float32, torch.int64, "cpu", object(),
        ]
        return tensors, others

    for function in functions:
        for _ in range(6):
            tensors, others = values()
            args = [choose.choice(tensors)] + [choose.choice(tensors + others) for _ in range(choose.choice([0, 1, 1, 2, 2, 3, 4]))]
            try:
                result = function(*args) if callable(function) else None
                if isinstance(result, torch.Tensor):
                    repr(result)
            except expected as error:
                assert "internal error" not in str(error), (function, args, error)
    print("survived")
""")


@pytest.mark.skipif(os.name == "nt", reason="limits of memory")
@pytest.mark.parametrize("seed", [1, 2])
def test_any_arguments(seed):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    result = subprocess.run([sys.executable, "-c", PROGRAM, str(seed)], env=environment, capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "survived", result.stderr[-3000:]
