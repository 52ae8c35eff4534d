"""PyTorch's permutations: a Mersenne Twister seeded as its CPU generator is, so that samples come in the order they have there."""

import random

__all__ = ["permutation"]

_WORDS = 624


def _twister(seed):
    """Python's generator in the state that a seed of 32 bits gives the twister."""
    words = [seed & 0xFFFFFFFF]
    for i in range(1, _WORDS):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + i) & 0xFFFFFFFF)
    made = random.Random()
    made.setstate((3, (*words, _WORDS), None))
    return made


def permutation(count, seed):
    """The numbers below ``count`` in the order of ``torch.randperm`` on the CPU.

    >>> permutation(10, 0)
    [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    """
    draw, order = _twister(seed).getrandbits, list(range(count))
    for i in range(count - 1):
        other = i + draw(32) % (count - i)
        order[i], order[other] = order[other], order[i]
    return order
