"""Wrappers of activation checkpointing, and policies that choose what is kept."""

import functools

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, CheckpointWrapper, apply_activation_checkpointing, checkpoint_wrapper, offload_wrapper,
)
from rushlight.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.GELU(), nn.Linear(8, 4, bias=False), nn.LayerNorm(4))


def gradients(net, run=None):
    x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    (run or net)(x).pow(2).sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


def same(found, expected):
    assert len(found) == len(expected) and all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected))


@pytest.mark.parametrize("wrapped", [
    checkpoint_wrapper, functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT), offload_wrapper,
    functools.partial(checkpoint_wrapper, preserve_rng_state=False, determinism_check="default", early_stop=True, debug=False),
])
def test_wrappers_change_neither_gradients_nor_names(wrapped):
    expected = gradients(model())
    net = wrapped(model())
    same(gradients(net), expected)
    assert list(net.state_dict()) == list(model().state_dict()) == [name for name, _ in net.named_parameters()]
    other = model()
    other.load_state_dict(net.state_dict())
    net.load_state_dict(other.state_dict())
    assert net[0] is net._checkpoint_wrapped_module[0] and len(net.state_dict()) == 4


def test_wrappers_within_a_model():
    net = model()
    apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, nn.Linear))
    assert [isinstance(part, CheckpointWrapper) for part in net] == [True, False, True, False]
    assert list(net.state_dict()) == list(model().state_dict())
    same(gradients(net), gradients(model()))


@pytest.mark.parametrize("kept, computed", [("none", 4), ("products", 2), ("every second", 3), ("all", 2)])
def test_policies_choose_what_is_kept(monkeypatch, kept, computed):
    """The products of both passes are counted; those of gradients run in Rust."""
    product, ran, seen = torch.ops.aten.mm, [], {False: 0, True: 0}
    monkeypatch.setattr(product, "_op", lambda *args, compute=product._op: ran.append(1) or compute(*args))

    def every_second(context, op, *args, **kwargs):
        seen[context.is_recompute] += op == product.default
        keep = kept == "all" or (op == product.default and seen[context.is_recompute] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    policy = {"none": [torch.ops.aten.gelu.default], "products": [product.default]}.get(kept, every_second)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    net = model()
    same(gradients(net, lambda x: checkpoint(net, x, use_reentrant=False, context_fn=contexts)), gradients(model()))
    assert len(ran) == computed


def test_a_policy_that_changes_is_an_error():
    net = model()

    def policy(context, op, *args, **kwargs):
        return context.is_recompute

    with pytest.raises(RuntimeError, match="not found in storage"):
        gradients(net, lambda x: checkpoint(net, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy)))
    with pytest.raises(ValueError, match="OpOverload"):
        create_selective_checkpoint_contexts([torch.mm])
    with pytest.raises(TypeError, match="function or a list"):
        create_selective_checkpoint_contexts(3)
