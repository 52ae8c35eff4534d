"""``deepspeed.ops.adam``: Adam as ``torch.optim`` has it; all of its steps are fused, on every device."""

from ... import optim

__all__ = ["DeepSpeedCPUAdam", "FusedAdam"]


class FusedAdam(optim.AdamW):
    """Adam with decoupled weight decay (``adam_w_mode``)."""

    def __init__(
        self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True, weight_decay=0.0, amsgrad=False, set_grad_none=True,
    ):
        if not bias_correction or not adam_w_mode:
            raise NotImplementedError("FusedAdam: bias_correction=False and adam_w_mode=False are not supported; use torch.optim.Adam")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class DeepSpeedCPUAdam(optim.AdamW):
    """Adam for states in the host's memory."""

    def __init__(
        self, model_params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, adamw_mode=True, fp32_optimizer_states=True,
    ):
        if not bias_correction or not adamw_mode or not fp32_optimizer_states:
            raise NotImplementedError("DeepSpeedCPUAdam: bias_correction=False, adamw_mode=False and fp32_optimizer_states=False are not supported")
        super().__init__(model_params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
