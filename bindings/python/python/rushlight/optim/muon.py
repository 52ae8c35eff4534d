"""Muon: momentum, orthogonalised."""

from .optimizer import _ByFormula

__all__ = ["Muon"]

_RATIOS = ("original", "match_rms_adamw", "spectral_unclamped")


class Muon(_ByFormula):
    """Replaces the momentum of a matrix by the nearest orthogonal matrix, by Newton-Schulz iterations in bfloat16.

    For the matrices of hidden layers; embeddings, biases and heads are better left to ``AdamW``.
    """

    _formula = "Muon"

    def __init__(
        self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7,
        ns_steps=5, adjust_lr_fn=None,
    ):
        for value, what in [(lr, "Learning rate"), (momentum, "momentum"), (weight_decay, "weight decay")]:
            if value < 0:
                raise ValueError(f"{what} should be >= 0 but is: {value}")
        if adjust_lr_fn is not None and adjust_lr_fn not in _RATIOS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        if len(ns_coefficients) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        super().__init__(params, dict(
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, eps=eps,
            ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn,
        ))
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")
