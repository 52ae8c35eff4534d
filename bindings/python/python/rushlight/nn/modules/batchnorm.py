"""Normalisation over batches."""

from __future__ import annotations

from ... import _C
from .. import init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "SyncBatchNorm"]

Tensor = _C.Tensor
_torch = _C._torch
_batch_norm = _C._nn.batch_norm


class _NormBase(Module):
    """The common part of batch and instance norms: weights and running statistics."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device=None, dtype=None, *, bias: bool = True,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = Parameter(_torch.empty(num_features, **factory))
        else:
            self.register_parameter("weight", None)
        if affine and bias:
            self.bias = Parameter(_torch.empty(num_features, **factory))
        else:
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", _torch.zeros(num_features, **factory))
            self.register_buffer("running_var", _torch.ones(num_features, **factory))
            self.register_buffer("num_batches_tracked", _torch.zeros((), dtype=_C.int64, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Resets the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say which inputs it takes")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest) -> None:
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:
            # The first version did not count batches.
            key = prefix + "num_batches_tracked"
            if key not in state_dict:
                own = self.num_batches_tracked
                state_dict[key] = own if own is not None and not own.is_meta else _torch.zeros((), dtype=_C.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    """Batch normalisation over any number of dimensions; subclasses check theirs."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        buffers = self._buffers
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and buffers["num_batches_tracked"] is not None:
            buffers["num_batches_tracked"].add_(1)
            if self.momentum is None:
                # The running values are means over all batches.
                momentum = 1.0 / float(buffers["num_batches_tracked"])
        running_mean, running_var = buffers["running_mean"], buffers["running_var"]
        by_batch = self.training or (running_mean is None and running_var is None)
        if self.training and not self.track_running_stats:
            running_mean = running_var = None
        own = self._parameters
        weight = own["weight"] if "weight" in own else self.weight
        bias = own["bias"] if "bias" in own else self.bias
        return _batch_norm(input, running_mean, running_var, weight, bias, by_batch, momentum, self.eps)


def _checked(input: Tensor, *dims: int) -> None:
    if input.dim() not in dims:
        raise ValueError(f"expected {' or '.join(f'{d}D' for d in dims)} input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Normalises every feature over the batch: inputs of two or three dimensions.

    >>> import rushlight as torch
    >>> torch.nn.BatchNorm1d(2)(torch.tensor([[0.0, 3.0], [2.0, 5.0]])).detach().round()
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _checked(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises every channel over the batch and the image."""

    def _check_input_dim(self, input: Tensor) -> None:
        _checked(input, 4)


class BatchNorm3d(_BatchNorm):
    """Normalises every channel over the batch and the volume."""

    def _check_input_dim(self, input: Tensor) -> None:
        _checked(input, 5)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm whose ``num_features`` the first input sets."""

    def __init__(
        self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias: bool = True
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        factory = {"device": device, "dtype": dtype}
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(**factory)
            if bias:
                self.bias = UninitializedParameter(**factory)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**factory)
            self.running_var = UninitializedBuffer(**factory)
            self.num_batches_tracked = _torch.zeros((), dtype=_C.int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[self._channel_dim(input)]
        for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()

    def _channel_dim(self, input: Tensor) -> int:
        return 1


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A ``BatchNorm1d`` whose ``num_features`` the first input sets."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A ``BatchNorm2d`` whose ``num_features`` the first input sets."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A ``BatchNorm3d`` whose ``num_features`` the first input sets."""

    cls_to_become = BatchNorm3d


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation with the statistics of all ranks of a group. In one process, and in evaluation, it is plain batch normalisation."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        process_group=None, device=None, dtype=None, *, bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        from ... import distributed

        by_batch = self.training or self.running_mean is None
        if not by_batch or not distributed.is_initialized() or distributed.get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        return self._over_ranks(input)

    def _over_ranks(self, input: Tensor) -> Tensor:
        """The norm by the statistics of all ranks, which is in Rust (``crates/dist``)."""
        running = None
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            running = (self.running_mean, self.running_var, momentum)
        return _C._sync_batch_norm(input, self.weight, self.bias, running, self.eps, self._ranks()._group)

    def _ranks(self):
        """The process group."""
        from ...distributed import distributed_c10d

        return distributed_c10d._resolve(self.process_group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group=None) -> Module:
        """The module with every batch norm in it converted to this class, with the same parameters and buffers."""
        made = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            for name in ("weight", "bias"):
                if name in made._parameters:
                    made._parameters[name] = module._parameters.get(name)
            made._buffers.update(module._buffers)
            made.training = module.training
        for name, child in list(module.named_children()):
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
