"""Padding in all its modes."""

import math

from family import bf16, f32, f64


def build(f):
    f.case("pad", f.uniform(5), [1, 2])
    f.case("pad", f.uniform(2, 3), [1, 2], mode="constant", value=1.5)
    f.case("pad", f.uniform(2, 3), [1, 0, 0, 2], value=-1.0)
    f.case("pad", f.uniform(2, 3, layout="transposed"), [1, 1, 1, 1])
    f.case("pad", f.uniform(2, 2, 3, dtype=f64, layout="strided"), [0, 1, 2, 0, 1, 1], value=0.5)
    f.case("pad", f.uniform(2, 4), [-1, 2])
    f.case("pad", f.uniform(3, 4), [-1, -1, 0, -1])
    f.case("pad", f.ints(2, 3), [1, 1], value=7)
    f.case("pad", f.bools(2, 3), [1, 1], value=True)
    f.case("pad", f.uniform(2, 3, dtype=bf16), [1, 1], value=-math.inf)
    f.case("pad", f.uniform(0, 3), [0, 0, 2, 0], value=1.0)
    for mode in ("reflect", "replicate", "circular"):
        f.case("pad", f.uniform(2, 5), [2, 1], mode=mode)
        f.case("pad", f.uniform(2, 2, 5), [3, 0], mode=mode)
        f.case("pad", f.uniform(1, 3, 5, dtype=f64, layout="transposed"), [1, 2], mode=mode)
        f.case("pad", f.uniform(2, 3, 4), [1, 2, 2, 1], mode=mode)
        f.case("pad", f.uniform(1, 2, 3, 4), [1, 2, 2, 1], mode=mode)
        f.case("pad", f.uniform(1, 2, 4, 3, layout="strided"), [2, 0, 0, 3], mode=mode)
        f.case("pad", f.uniform(2, 1, 3, 3, dtype=f64, layout="transposed"), [1, 1, 1, 1], mode=mode)
        f.case("pad", f.uniform(1, 2, 4, dtype=bf16), [1, 1], mode=mode)
    f.case("pad", f.uniform(1, 2, 2), [4, 3], mode="replicate")
    f.case("pad", f.uniform(1, 2, 4), [4, 4], mode="circular")
    f.case("pad", f.uniform(1, 2, 5), [-1, 2], mode="reflect")
    f.case("pad", f.uniform(1, 2, 5, dtype=f32), [2, -2], mode="replicate")
