"""Losses for detection."""

from ... import _C

__all__ = ["sigmoid_focal_loss"]


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2, reduction="none"):
    """Focal loss: cross entropy of logits that gives well-classified samples less weight."""
    p = inputs.sigmoid()
    loss = _C._nn.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - (p * targets + (1 - p) * (1 - targets))) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"Invalid Value for arg 'reduction': '{reduction}'. Supported reduction modes: 'none', 'mean', 'sum'")
    return loss if reduction == "none" else getattr(loss, reduction)()
