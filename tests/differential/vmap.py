"""``vmap`` over PyTorch's operator database: a batch must give what a loop over its elements gives.

    python tests/differential/vmap.py [--dtype float32] [--samples 4] [--only PREFIX] [--least 0.9] [--loops]

with a Python that has torch, numpy and scipy; the extension built. Each sample's tensors are batched with a changed copy of themselves. Three forms run: all
tensors batched, the first only, all but the first. ``--loops`` also prints the ops that have no batching rule and run once for each element.
"""

import argparse
import itertools
import signal
import sys
import warnings

import opinfo
from opinfo import LeftOut, TooLong, entry_name, kinds_of, left_out, op_db, ours, torch

from rushlight import _batch

#: Refused in PyTorch as well: sizes that depend on values, and results that are not tensors.
REFUSED = ("data-dependent", "dynamic shapes", "calling .item()", "must only return Tensors", "inplace arithmetic", "out=", "is not batched", "were not batched")


def batches(tensors, chosen):
    """The chosen tensors with a second element: the first in another order of rows, or equal."""
    return [ours.stack([t, t.flip(0) if flips else t]) if batched else t for t, (batched, flips) in zip(tensors, chosen)]


def run_form(function, args, chosen):
    """How ``vmap`` differs from the loop, or None. ``chosen`` says for each tensor whether it is batched, and whether its second element is flipped."""
    flat, spec = ours.utils._pytree.tree_flatten(args)
    places = [k for k, leaf in enumerate(flat) if isinstance(leaf, ours.Tensor)]
    tensors = [flat[k].detach() for k in places]

    def call(*given):
        leaves = list(flat)
        for k, tensor in zip(places, given):
            leaves[k] = tensor
        input, rest, kwargs = ours.utils._pytree.tree_unflatten(leaves, spec)
        result = function(input.clone() if isinstance(input, ours.Tensor) else input, *rest, **kwargs)
        return [leaf for leaf in opinfo.leaves(result) if isinstance(leaf, ours.Tensor)]

    whole = batches(tensors, chosen)
    rows = []
    for i in range(2):
        rows.append(call(*(t[i] if batched else t for t, (batched, _) in zip(whole, chosen))))
    if not rows[0] or any(a.shape != b.shape for a, b in zip(*rows)):
        return None
    try:
        found = ours.vmap(call, tuple(0 if batched else None for batched, _ in chosen))(*whole)
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AttributeError, KeyError, StopIteration) as error:
        return None if any(text in str(error) for text in REFUSED) else f"{type(error).__name__}: {str(error)[:140]}"
    for k, result in enumerate(found):
        expected = ours.stack([row[k] for row in rows])
        if result.shape != expected.shape or result.dtype != expected.dtype:
            return f"result {k}: {result.dtype} {tuple(result.shape)} for {expected.dtype} {tuple(expected.shape)}"
        a, b = opinfo.array(expected), opinfo.array(result)
        if not opinfo.np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"result {k}: values differ"
    return None


def run_entry(info, dtype, convert, samples):
    function = opinfo.function_of(info)
    if function is None:
        return None
    signal.alarm(opinfo.SECONDS)
    try:
        for sample in itertools.islice(info.sample_inputs("cpu", dtype), samples):
            try:
                args = convert((sample.input, sample.args, sample.kwargs))
                function(args[0], *args[1], **args[2])
            except TooLong:
                raise
            except Exception:
                continue  # Not a matter of batches.
            args = convert((sample.input, sample.args, sample.kwargs))
            tensors = [t for t in opinfo.leaves(args) if isinstance(t, ours.Tensor)]
            if not tensors:
                continue
            flips = [t.is_floating_point() and t.dim() == 1 for t in tensors]
            forms = [[True] * len(tensors), [True] + [False] * (len(tensors) - 1), [False] + [True] * (len(tensors) - 1)]
            for form in forms[: 1 if len(tensors) == 1 else 3]:
                if any(form):
                    why = run_form(function, args, list(zip(form, flips)))
                    if why:
                        return why
    except TooLong:
        return f"longer than {opinfo.SECONDS} s"
    except LeftOut:
        return None
    finally:
        signal.alarm(0)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("--loops", action="store_true")
    options = parser.parse_args()

    def stop(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    warnings.simplefilter("ignore")
    looped = set()
    loop = _batch.Level.loop
    _batch.Level.loop = lambda self, func, *rest, **kwargs: looped.add(getattr(func, "__name__", str(func))) or loop(self, func, *rest, **kwargs)
    rules, dtype, convert = left_out(), getattr(torch, options.dtype), opinfo.Converter("cpu")
    entries = [i for i in op_db if dtype in i.dtypes and entry_name(i).startswith(options.only) and not kinds_of(entry_name(i), rules) & {"skip", "random"}]
    agree = 0
    for info in entries:
        why = run_entry(info, dtype, convert, options.samples)
        agree += why is None
        if why:
            print(f"{entry_name(info)}: {why}", flush=True)
    if options.loops:
        print("no rule:", " ".join(sorted(looped)))
    share = agree / max(len(entries), 1)
    print(f"vmap, {options.dtype}: {agree} of {len(entries)} ops give what a loop gives ({share:.1%})")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
