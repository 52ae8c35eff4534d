"""``local_map``: a function of plain tensors that runs on the local parts of DTensors."""

import functools

from .... import _C
from ....utils._pytree import tree_flatten, tree_unflatten
from .._api import DTensor
from ..placement_types import Placement

__all__ = ["local_map"]


def _listed(placements):
    """Placements of each of several tensors; those of one count for all."""
    return placements if placements is None or any(p is None or not isinstance(p, Placement) for p in placements) else None


def local_map(func=None, out_placements=None, in_placements=None, in_grad_placements=None, device_mesh=None, *, redistribute_inputs=False):
    """Runs ``func`` on the local parts of its DTensor arguments and places its results. ``in_placements`` has an item for each argument that is flattened: the
    placements that the DTensor must have (``redistribute_inputs`` moves it) or None for anything else."""
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements, device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )

    @functools.wraps(func)
    def run(*args, **kwargs):
        flat, spec = tree_flatten(args)
        if in_placements is not None and len(in_placements) != len(flat):
            raise AssertionError(f"in_placements length {len(in_placements)} does not match the number of input args {len(flat)}!")
        mesh, locals_, seen = device_mesh, [], False
        for i, value in enumerate(flat):
            wanted = in_placements[i] if in_placements is not None else None
            if not isinstance(value, DTensor):
                if isinstance(value, _C.Tensor) and wanted is not None:
                    raise AssertionError(f"Non-DTensor input {i} expects None placements but received {wanted}!")
                locals_.append(value)
                continue
            seen = True
            mesh = mesh or value.device_mesh
            if in_placements is not None:
                if wanted is None:
                    raise AssertionError(f"DTensor input {i} expects placements but received None!")
                wanted = tuple(wanted)
                if value.placements != wanted:
                    if not redistribute_inputs:
                        raise ValueError(
                            f"arg {i} in local_map has a mismatched placements: arg placements is {value.placements} but the input placements is {wanted}! "
                            "If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
                        )
                    value = value.redistribute(placements=wanted)
            grads = in_grad_placements[i] if in_grad_placements is not None else None
            locals_.append(value.to_local(grad_placements=grads))
        result = func(*tree_unflatten(locals_, spec), **kwargs)
        if not seen:
            return result
        results, shape = tree_flatten(result)
        placed = _listed(out_placements)
        if placed is None:
            placed = [out_placements] * len(results)
        if len(placed) != len(results):
            raise AssertionError(f"local_map requires one PlacementType be provided for each output value, received {len(placed)} out_placements but {len(results)} outputs!")
        made = []
        for value, placements in zip(results, placed):
            if isinstance(value, _C.Tensor) and placements is not None:
                value = DTensor.from_local(value, mesh, placements, run_check=False)
            made.append(value)
        return tree_unflatten(made, shape)

    return run
