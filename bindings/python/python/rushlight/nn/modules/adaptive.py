"""Softmax over very many classes, with less work for the rare ones."""

from __future__ import annotations

from collections import namedtuple

from ... import _C
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

Tensor = _C.Tensor
_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes in clusters by frequency: ``cutoffs`` are the first classes of clusters; rare clusters get fewer features."""

    def __init__(
        self, in_features: int, n_classes: int, cutoffs, div_value: float = 4.0, head_bias: bool = False, device=None, dtype=None
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(cutoffs) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1 or len(set(cutoffs)) != len(cutoffs)
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between "
                "1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **factory)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            features = int(in_features // div_value ** (i + 1))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, features, bias=False, **factory), Linear(features, classes, bias=False, **factory)))

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """The log probability of every target, and the loss: minus their mean."""
        if target_.dim() == 1:
            if input_.shape[0] != target_.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with size {input_.size()}")
        elif target_.dim() == 0:
            if input_.dim() != 1:
                raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input_.size()}")
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        if target.numel() and not (int(target.min()) >= 0 and int(target.max()) < self.n_classes):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], "
                f"but values in range [{int(target.min())}, {int(target.max())}] were found. "
            )
        head = _C._nn.log_softmax(self.head(input), 1)
        place = target.clamp(max=self.shortlist_size - 1)
        rows = input.shape[0]
        extra = _C._torch.zeros(rows, dtype=head.dtype, device=head.device)
        for i, tail in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            inside = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if inside.numel() == 0:
                continue
            place = place.index_fill(0, inside, self.shortlist_size + i)
            within = _C._nn.log_softmax(tail(input.index_select(0, inside)), 1)
            found = within.gather(1, (target.index_select(0, inside) - low).unsqueeze(1)).squeeze(1)
            extra = extra.index_add(0, inside, found)
        output = head.gather(1, place.unsqueeze(1)).squeeze(1) + extra
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes."""
        head = _C._nn.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(_C._nn.log_softmax(tail(input), 1) + head[:, at : at + 1])
        return _C._torch.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of every row."""
        return self.log_prob(input).argmax(1)
