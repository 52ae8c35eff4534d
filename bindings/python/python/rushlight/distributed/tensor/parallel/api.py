"""``parallelize_module``: applies a plan of styles to a module."""

import fnmatch
import warnings

from ...device_mesh import _mesh_resources
from .style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(module, device_mesh=None, parallelize_plan=None, *, src_data_rank=0):
    """Applies a style to a module, or styles to the submodules that the keys of a dict name; ``*`` and ``?`` stand for parts of a name."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module: a mesh of one dimension is needed, got {mesh}; take a part of it by name, as mesh['tp']")
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module call will do nothing.", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        if path == "":
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        found = [module]
        for atom in path.split("."):
            found = [child for part in found for name, child in part._modules.items() if child is not None and fnmatch.fnmatch(name, atom)]
        if not found:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching it in {type(module).__name__}.", stacklevel=2)
        for part in found:
            parallelize_module(part, mesh, style, src_data_rank=src_data_rank)
    return module
