"""``torch.quasirandom``: Sobol sequences, points that fill a cube evenly.

A sequence has one primitive polynomial over two elements and a few initial direction numbers per dimension. The polynomials are enumerated in order;
``_sobol.bin`` has the initial numbers of Joe and Kuo, two bytes each.
"""

import functools
import os
import struct

from . import _C

__all__ = ["SobolEngine"]

_torch = _C._torch


def _times(a, b, polynomial, degree):
    """The product of two polynomials over two elements, modulo another."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        b >>= 1
        a <<= 1
        if a >> degree & 1:
            a ^= polynomial
    return product


def _is_primitive(polynomial, degree, prime_factors):
    """Whether the powers of ``x`` modulo a polynomial are all non-zero polynomials."""
    order = (1 << degree) - 1

    def power(exponent):
        result, base = 1, 2 if degree > 1 else 2 ^ polynomial
        while exponent:
            if exponent & 1:
                result = _times(result, base, polynomial, degree)
            base = _times(base, base, polynomial, degree)
            exponent >>= 1
        return result

    return power(order) == 1 and all(power(order // p) != 1 for p in prime_factors)


def _prime_factors(n):
    found, p = set(), 2
    while n > 1:
        while n % p == 0:
            found.add(p)
            n //= p
        p = p + 1 if p * p <= n else n
    return found


def _polynomials():
    """Primitive polynomials with their degrees, in order."""
    degree = 0
    while True:
        degree += 1
        factors = _prime_factors((1 << degree) - 1)
        for polynomial in range(1 << degree | 1, 1 << degree + 1, 2):
            if _is_primitive(polynomial, degree, factors):
                yield degree, polynomial


@functools.lru_cache(4)
def _directions(dimension, bits):
    """Direction numbers: for each dimension and bit, the number that the bit contributes."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_sobol.bin"), "rb") as file:
        initial = struct.iter_unpack("<H", file.read())
    rows = [[1 << bits - 1 - k for k in range(bits)]]
    for degree, polynomial in _polynomials():
        if len(rows) == dimension:
            return rows
        numbers = [next(initial)[0] for _ in range(degree)]
        for k in range(degree, bits):
            number = numbers[k - degree] ^ numbers[k - degree] << degree
            for j in range(1, degree):
                if polynomial >> degree - j & 1:
                    number ^= numbers[k - j] << j
            numbers.append(number)
        rows.append([number << bits - 1 - k for k, number in enumerate(numbers[:bits])])


class SobolEngine:
    """Points of a Sobol sequence in the unit cube, optionally scrambled.

    >>> import rushlight as torch
    >>> torch.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 1111

    def __init__(self, dimension, scramble=False, seed=None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate = _C.tensor(_directions(dimension, self.MAXBIT), dtype=_C.int64)
        self.shift = _torch.zeros(dimension, dtype=_C.int64)
        if scramble:
            self._scramble()
        self.num_generated = 0

    def _scramble(self):
        """Multiplies the digits of each dimension by a random triangular matrix, and shifts them."""
        generator = None if self.seed is None else _C.Generator().manual_seed(self.seed)
        draw = functools.partial(_torch.rand, generator=generator)
        weights = 1 << _torch.arange(self.MAXBIT)
        self.shift = ((draw(self.dimension, self.MAXBIT) < 0.5).long() * weights).sum(1)
        # Row i of a matrix gives digit i of the result, the most significant first: it reads digits up to i.
        lower = (draw(self.dimension, self.MAXBIT, self.MAXBIT) < 0.5).long().tril(-1) + _torch.eye(self.MAXBIT, dtype=_C.int64)
        order = _torch.arange(self.MAXBIT - 1, -1, -1)
        digits = (self.sobolstate.unsqueeze(-1) >> order) & 1
        mixed = (lower.unsqueeze(1) * digits.unsqueeze(2)).sum(-1) & 1
        self.sobolstate = (mixed << order).sum(-1)

    def draw(self, n=1, out=None, dtype=None):
        """The next ``n`` points, as rows."""
        dtype = _C.get_default_dtype() if dtype is None else dtype
        index = _torch.arange(self.num_generated, self.num_generated + n)
        gray = index ^ index >> 1
        points = self.shift.expand(n, self.dimension)
        for bit in range(max(1, (self.num_generated + n).bit_length())):
            if bit == self.MAXBIT:
                raise RuntimeError(f"SobolEngine: a sequence has 2**{self.MAXBIT} points; call reset()")
            points = points ^ ((gray >> bit & 1).unsqueeze(1) * self.sobolstate[:, bit])
        self.num_generated += n
        result = (points.double() * 2.0**-self.MAXBIT).to(dtype)
        if out is None:
            return result
        out.resize_(result.shape).copy_(result)
        return out

    def draw_base2(self, m, out=None, dtype=None):
        """The next ``2**m`` points. The total must be a power of two, which keeps the points balanced."""
        n, total = 2**m, self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, "
                "please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self):
        """Starts again from the first point."""
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Skips ``n`` points."""
        self.num_generated += n
        return self

    def __repr__(self):
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown.append("scramble=True")
        if self.seed is not None:
            shown.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(shown)})"
