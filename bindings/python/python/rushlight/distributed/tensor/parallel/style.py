"""Styles: how the parameters, inputs and outputs of a module lie on the ranks."""

from abc import ABC, abstractmethod
from functools import partial

from .... import _C
from ....nn import Embedding, Linear, Parameter
from .. import _overlap
from .._api import DTensor, distribute_module, distribute_tensor
from ..placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel",
]

Tensor = _C.Tensor


class ParallelStyle(ABC):
    """The base of styles."""

    src_data_rank = 0

    @abstractmethod
    def _apply(self, module, device_mesh): ...


def _distributed(value, mesh, layout, desired):
    """A tensor as a DTensor with the desired layout."""
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, (layout,))
    return value if value.placements == (desired,) else value.redistribute(placements=(desired,))


def _given(value, mesh, layout, use_local):
    if value.placements != (layout,):
        value = value.redistribute(placements=(layout,))
    return value.to_local() if use_local else value


class _LayerStyle(ParallelStyle):
    """A style of one layer's parameters."""

    def __init__(self, input_layout, desired_input, output_layout, use_local_output):
        self.input_layouts, self.desired_input_layouts, self.output_layouts = (input_layout,), (desired_input,), (output_layout,)
        self.use_local_output = use_local_output

    def _split(self, mesh, module, placed):
        for name, param in list(module._parameters.items()):
            if param is not None:
                made = distribute_tensor(param.detach(), mesh, [placed(name)], src_data_rank=self.src_data_rank)
                module.register_parameter(name, Parameter(made, param.requires_grad))

    def _hooked(self, module, mesh, partition):
        def before(_, inputs, mesh):
            layout, desired = self.input_layouts[0], self.desired_input_layouts[0]
            overlaps = isinstance(module, Linear) and _overlap.overlaps(mesh)
            _overlap.want(self.output_layouts[0] if overlaps else None)
            value = inputs[0] if isinstance(inputs[0], DTensor) else DTensor.from_local(inputs[0], mesh, (layout,))
            if overlaps and desired.is_replicate() and _overlap.rows(value, mesh, layout) is not None:
                # The layer gathers its input itself.
                desired = layout
            return (_distributed(value, mesh, layout, desired), *inputs[1:])

        def after(_, output, mesh):
            _overlap.want(None)
            return _given(output, mesh, self.output_layouts[0], self.use_local_output)

        return distribute_module(module, mesh, partition, before, after)


class ColwiseParallel(_LayerStyle):
    """The output features of a Linear, or the embedding dimensions of an Embedding, split over the ranks."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__(input_layouts or Replicate(), Replicate(), output_layouts or Shard(-1), use_local_output)

    def _apply(self, module, device_mesh):
        if not isinstance(module, (Linear, Embedding)):
            raise NotImplementedError("ColwiseParallel currently only support nn.Linear and nn.Embedding!")
        dim = 0 if isinstance(module, Linear) else 1
        return self._hooked(module, device_mesh, lambda name, part, mesh: self._split(mesh, part, lambda _: Shard(dim)))


class RowwiseParallel(_LayerStyle):
    """The input features of a Linear, or the vocabulary of an Embedding, split over the ranks. The ranks' outputs are summed."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__(input_layouts or Shard(-1), Shard(-1), output_layouts or Replicate(), use_local_output)

    def _apply(self, module, device_mesh):
        if isinstance(module, Linear):
            placed = lambda name: Shard(1) if name == "weight" else Replicate()
            self.desired_input_layouts = (Shard(-1),)
        elif isinstance(module, Embedding):
            placed = lambda name: Shard(0)
            self.desired_input_layouts = (Replicate(),)
        else:
            raise NotImplementedError("RowwiseParallel currently only support nn.Linear and nn.Embedding!")
        return self._hooked(module, device_mesh, lambda name, part, mesh: self._split(mesh, part, placed))


class SequenceParallel(ParallelStyle):
    """Parameters replicated, activations split along the sequence: for norms and dropout."""

    def __init__(self, *, sequence_dim=1, use_local_output=False):
        self.sequence_sharding, self.use_local_output = (Shard(sequence_dim),), use_local_output

    def _apply(self, module, device_mesh):
        def partition(name, part, mesh):
            for key, param in list(part._parameters.items()):
                if param is not None:
                    made = distribute_tensor(param.detach(), mesh, [Replicate()], src_data_rank=self.src_data_rank)
                    part.register_parameter(key, Parameter(made, param.requires_grad))

        def before(_, inputs, mesh):
            if not isinstance(inputs[0], Tensor):
                raise ValueError(f"expecting input of {type(module).__name__} to be a torch.Tensor or DTensor, but got {inputs[0]}")
            return (_distributed(inputs[0], mesh, self.sequence_sharding[0], self.sequence_sharding[0]), *inputs[1:])

        def after(_, output, mesh):
            return output.to_local() if self.use_local_output else output

        return distribute_module(module, device_mesh, partition, before, after)


def _tuple(layouts):
    return (layouts,) if layouts is None or isinstance(layouts, Placement) else tuple(layouts)


class PrepareModuleInput(ParallelStyle):
    """Inputs of a module brought from one layout to another; None leaves an input alone."""

    def __init__(
        self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None, desired_input_kwarg_layouts=None, use_local_output=False
    ):
        self.input_layouts = None if input_layouts is None else _tuple(input_layouts)
        self.desired_input_layouts = None if desired_input_layouts is None else _tuple(desired_input_layouts)
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        if set(self.input_kwarg_layouts) != set(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have the same names!")

    def _one(self, value, mesh, layout, desired):
        if layout is None or not isinstance(value, Tensor):
            return value
        made = _distributed(value, mesh, layout, layout if desired is None else desired)
        return made.to_local() if self.use_local_output else made

    def _apply(self, module, device_mesh):
        def before(mesh, _, args, kwargs):
            if self.input_layouts is not None:
                if len(args) != len(self.input_layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                args = tuple(self._one(a, mesh, i, d) for a, i, d in zip(args, self.input_layouts, self.desired_input_layouts))
            kwargs = {k: self._one(v, mesh, self.input_kwarg_layouts.get(k), self.desired_input_kwarg_layouts.get(k)) for k, v in kwargs.items()}
            return args, kwargs

        module.register_forward_pre_hook(partial(before, device_mesh), with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Outputs of a module brought from one layout to another; None leaves an output alone."""

    def __init__(self, *, output_layouts, desired_output_layouts, use_local_output=True):
        self.output_layouts, self.desired_output_layouts = _tuple(output_layouts), _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module, device_mesh):
        def after(mesh, _, inputs, outputs):
            single = not isinstance(outputs, tuple)
            listed = (outputs,) if single else outputs
            if len(listed) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            found = []
            for value, layout, desired in zip(listed, self.output_layouts, self.desired_output_layouts):
                if layout is not None:
                    value = _distributed(value, mesh, layout, layout if desired is None else desired)
                    value = value.to_local() if self.use_local_output else value
                found.append(value)
            return found[0] if single else tuple(found)

        module.register_forward_hook(partial(after, device_mesh))
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """``PrepareModuleInput`` and ``PrepareModuleOutput`` of one module."""

    def __init__(
        self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None, desired_input_kwarg_layouts=None, use_local_input=False, output_layouts,
        desired_output_layouts, use_local_output=True,
    ):
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output
        )

    def _apply(self, module, device_mesh):
        self.prepare_module_input._apply(module, device_mesh)
        self.prepare_module_output._apply(module, device_mesh)
        return module
