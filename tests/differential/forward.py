"""Forward mode over PyTorch's operator database: tangents must be PyTorch's, alone and in a batch.

    python tests/differential/forward.py [--dtype float64] [--samples 3] [--only PREFIX] [--part 0/4] [--least 0.98]

with a Python that has torch, numpy and scipy; the extension built. All numbers of a sample that are differentiable get tangents. Ops that PyTorch has no
forward derivative of are not counted. The batch has two tangents: the first, and the first halved.
"""

import argparse
import itertools
import signal
import sys
import warnings

import opinfo
from opinfo import LeftOut, TooLong, entry_name, kinds_of, left_out, op_db, ours, torch


def tangent(library, tensor):
    values = ((library.arange(tensor.numel(), device=tensor.device) % 5 + 1) / 4).to(tensor.dtype)
    return (values * (1 - 0.5j) if tensor.is_complex() else values).reshape(tensor.shape)


def places_of(library, leaves):
    return [k for k, leaf in enumerate(leaves) if isinstance(leaf, library.Tensor) and leaf.requires_grad]


def derived(library, info, function, args, batched=False):
    """The results of a function with their tangents. Functions of Hermitian and of triangular matrices get such tangents."""
    leaves, spec = library.utils._pytree.tree_flatten(args)
    places = places_of(library, leaves)
    primals = tuple(leaves[k].detach() for k in places)
    tangents = tuple(tangent(library, p) for p in primals)
    kind = getattr(info.gradcheck_wrapper, "__name__", "")
    if "hermitian" in kind:
        tangents = (tangents[0] + tangents[0].mH, *tangents[1:])
    if "triangular" in kind:
        wanted = args[2].get("upper", len(args[1]) > 1 and args[1][1] is True or info.name == "triangular_solve" and args[2].get("upper", True))
        unit = int(args[2].get("unitriangular", False))
        tangents = tuple((t.triu(unit) if wanted else t.tril(-unit)) if t.shape[-1:] == t.shape[-2:-1] else t for t in tangents)

    def call(*given):
        all_leaves = list(leaves)
        for k, tensor in zip(places, given):
            all_leaves[k] = tensor
        input, rest, kwargs = library.utils._pytree.tree_unflatten(all_leaves, spec)
        input = input.clone() if isinstance(input, library.Tensor) else input
        return tuple(r for r in opinfo.leaves(opinfo.unique(library, info.name, function(input, *rest, **kwargs), kwargs)) if isinstance(r, library.Tensor) and (r.is_floating_point() or r.is_complex()))

    with library.no_grad():
        if not batched:
            return library.func.jvp(call, primals, tangents)
        both = tuple(library.stack([t, t / 2]) for t in tangents)
        return library.vmap(lambda *t: library.func.jvp(call, primals, t)[1], randomness="same")(*both)


def run_sample(info, function, sample, convert, tolerance):
    """How a sample differs, or None; LeftOut if it is no sample for forward mode."""
    theirs = (sample.input, sample.args, sample.kwargs)
    if not places_of(torch, torch.utils._pytree.tree_flatten(theirs)[0]):
        raise LeftOut
    try:
        values, expected = derived(torch, info, info.op, theirs)
    except Exception:
        raise LeftOut from None
    if any(isinstance(v, torch.Tensor) and v.layout != torch.strided for v in values):
        raise LeftOut
    try:
        found = derived(ours, info, function, convert(theirs))[1]
    except TooLong:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    for k, (p, q) in enumerate(zip(expected, found)):
        why = opinfo.difference(p, q, f"tangent {k}", tolerance, False)
        if why:
            return why
    try:
        found = derived(ours, info, function, convert(theirs), True)
    except TooLong:
        raise
    except Exception as error:
        return f"batch: {type(error).__name__}: {str(error)[:150]}"
    for k, (p, q) in enumerate(zip(expected, found)):
        why = opinfo.difference(torch.stack([p, p / 2]), q, f"batch: tangent {k}", tolerance, False)
        if why:
            return why
    return None


def run_entry(info, dtype, convert, samples, tolerance):
    """How an op differs, or None; False if no sample is one for forward mode."""
    function, counted = opinfo.function_of(info), False
    if function is None:
        return "no such name"
    signal.alarm(2 * opinfo.SECONDS)
    try:
        for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=True), samples):
            try:
                why = run_sample(info, function, sample, convert, tolerance)
                counted = True
            except LeftOut:
                continue
            if why:
                return why
    except TooLong:
        return f"longer than {2 * opinfo.SECONDS} s"
    finally:
        signal.alarm(0)
    return None if counted else False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", nargs="+", default=["float64", "complex128"])
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1", help="every N-th op from the K-th on, as K/N")
    parser.add_argument("--least", type=float, default=0.0)
    options = parser.parse_args()

    def stop(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    warnings.simplefilter("ignore")
    rules, convert, failed = left_out(), opinfo.Converter("cpu"), False
    part, parts = map(int, options.part.split("/"))
    for name in options.dtype:
        dtype = getattr(torch, name)
        wanted = [i for i in op_db if dtype in i.dtypes and i.supports_autograd and i.supports_forward_ad and entry_name(i).startswith(options.only)]
        wanted = [i for i in wanted if not kinds_of(entry_name(i), rules) & {"skip", "random", "order"}]
        agree = counted = 0
        for info in wanted[part::parts]:
            why = run_entry(info, dtype, convert, options.samples, opinfo.TOLERANCE[name])
            if why is False:
                continue
            counted += 1
            agree += why is None
            if why:
                print(f"{name} {entry_name(info)}: {why}", flush=True)
        share = agree / max(counted, 1)
        print(f"forward mode, {name}: the tangents of {agree} of {counted} ops are PyTorch's ({share:.1%})", flush=True)
        failed |= share < options.least
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
