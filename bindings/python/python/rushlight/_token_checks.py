"""What libraries of quantised layers use of ``torch.ao.quantization.fx._decomposed``: they compute with plain tensors themselves."""

import math

__all__ = ["_per_token_quant_qparam_dim_check"]


def _per_token_quant_qparam_dim_check(input, scales, zero_points):
    """Raises unless there are a scale and a zero point for each token."""
    tokens = math.prod(input.shape[:-1])
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        if given.numel() != tokens:
            raise AssertionError(f"num_tokens: {tokens} {name}: {given.size()}")
