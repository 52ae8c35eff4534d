"""Fourier transforms and complex products beside PyTorch: microseconds and ratios.

    PYTHON bench/fft.py [--threads N] [--seconds S] [--device cuda] [--quick]

with a Python that has torch; rushlight from the tree or installed, built for release. Both run in one process, in turns, and the fastest turn of each counts.
A ratio above one means that PyTorch takes longer. Sizes: powers of two, mixed radices, primes, batches of lines, images, and products of complex matrices.
"""

import argparse
import math
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python" / "python"))


def cases(quick):
    """Names, shapes, and the function of a library and an input."""
    lines = [(64, 64), (16, 1024), (4, 16384), (1, 1 << 18), (16, 1000), (16, 1536), (8, 3125), (16, 480), (16, 1009), (8, 4410)]
    for rows, n in lines[:4] if quick else lines:
        yield f"fft {rows} x {n}", (rows, n), True, lambda t, x: t.fft.fft(x)
        yield f"rfft {rows} x {n}", (rows, n), False, lambda t, x: t.fft.rfft(x)
        yield f"irfft {rows} x {n}", (rows, n // 2 + 1), True, lambda t, x: t.fft.irfft(x)
    for shape in [(3, 64, 64)] if quick else [(3, 64, 64), (3, 240, 320), (1, 512, 512), (8, 48, 48, 48)]:
        yield f"fftn {' x '.join(map(str, shape))}", shape, True, lambda t, x: t.fft.fftn(x, dim=tuple(range(1, x.dim())))
        yield f"rfftn {' x '.join(map(str, shape))}", shape, False, lambda t, x: t.fft.rfftn(x, dim=tuple(range(1, x.dim())))
    yield "stft 1 x 16000", (1, 16000), False, lambda t, x: t.stft(x, 400, 160, window=t.hann_window(400, device=x.device), return_complex=True)
    for n in [64] if quick else [16, 64, 256, 512]:
        yield f"complex product {n}", (n, n), True, lambda t, x: x @ x
    yield "complex add 100000", (100000,), True, lambda t, x: x + x
    yield "complex multiply 100000", (100000,), True, lambda t, x: x * x
    yield "complex abs 100000", (100000,), True, lambda t, x: x.abs()


def fastest(function, wait, seconds, clock):
    """The least time of a call, in microseconds. `wait` returns when the device has finished."""
    function()
    wait()
    started = clock()
    function()
    wait()
    once = max(clock() - started, 1e-7)
    count = max(1, min(1000, int(seconds / 5 / once)))
    best, end = math.inf, clock() + seconds
    while clock() < end:
        started = clock()
        for _ in range(count):
            function()
        wait()
        best = min(best, (clock() - started) / count)
    return best * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each measurement")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: the same cases on a GPU")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    import numpy as np
    import rushlight
    import torch

    # With one thread on the CPU the processor's time counts, which other programs on the machine change little.
    on_cpu = options.device == "cpu"
    clock = time.process_time if options.threads == 1 and on_cpu else time.perf_counter
    generator = np.random.default_rng(0)
    ratios = []
    for library in (torch, rushlight):
        library.set_num_threads(options.threads)
    print(f"{'case':32} {'PyTorch':>10} {'Rushlight':>10} {'ratio':>6}")
    for name, shape, complex_, function in cases(options.quick):
        values = generator.standard_normal(shape, dtype=np.float32)
        if complex_:
            values = values + 1j * generator.standard_normal(shape, dtype=np.float32)
        found = [math.inf, math.inf]
        for turn in range(2):
            for at, library in enumerate((torch, rushlight)):
                x = library.from_numpy(values.copy()).to(options.device)
                wait = (lambda: None) if on_cpu else library.cuda.synchronize
                found[at] = min(found[at], fastest(lambda: function(library, x), wait, options.seconds, clock))
        ratios.append(found[0] / found[1])
        print(f"{name:32} {found[0]:10.1f} {found[1]:10.1f} {ratios[-1]:6.2f}", flush=True)
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, lowest {min(ratios):.2f}")


if __name__ == "__main__":
    main()
