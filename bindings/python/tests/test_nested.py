"""Nested tensors beside the same computation on each component, where PyTorch refuses or needs a GPU."""

import copy
import pickle

import pytest
import rushlight as torch
import rushlight.nn.functional as F


def batch(layout, requires_grad=False):
    torch.manual_seed(0)
    return torch.nested.nested_tensor([torch.randn(n, 6) for n in (3, 1, 5)], layout=layout, requires_grad=requires_grad)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_runs_on_each_sequence(layout, causal):
    n = batch(layout)
    heads = n.reshape(3, -1, 2, 3).transpose(1, 2)
    found = F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal).transpose(1, 2)
    for part, out in zip(n.unbind(), found.unbind()):
        h = part.reshape(1, -1, 2, 3).transpose(1, 2)
        torch.testing.assert_close(out, F.scaled_dot_product_attention(h, h, h, is_causal=causal).transpose(1, 2)[0])


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_block_has_the_gradients_of_padded_sequences(layout):
    torch.manual_seed(1)
    linear, norm = torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)
    n = batch(layout, requires_grad=True)

    def block(x):
        return norm(x + F.gelu(linear(x)))

    block(n).to_padded_tensor(0.0).pow(3).sum().backward()
    found = [p.grad.clone() for p in linear.parameters()] + list(n.grad.unbind())
    linear.zero_grad()
    parts = [part.detach().clone().requires_grad_() for part in n.unbind()]
    sum(block(part).pow(3).sum() for part in parts).backward()
    for a, b in zip(found, [p.grad for p in linear.parameters()] + [p.grad for p in parts]):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_copies_and_pickles(layout):
    n = batch(layout, requires_grad=True)
    for other in (copy.deepcopy(n), pickle.loads(pickle.dumps(n))):
        assert other.requires_grad and other.layout == layout
        assert all(torch.equal(a, b) for a, b in zip(n.unbind(), other.unbind()))


def test_components_of_a_tensor_with_gaps():
    n = torch.nested.nested_tensor_from_jagged(torch.arange(8.0), torch.tensor([0, 3, 4, 8]), lengths=torch.tensor([2, 1, 3]))
    packed = n.contiguous()
    assert packed.values().tolist() == [0, 1, 3, 4, 5, 6] and packed.offsets().tolist() == [0, 2, 3, 6]
    assert n.to_padded_tensor(-1.0).tolist() == [[0, 1, -1], [3, -1, -1], [4, 5, 6]]
    assert n.sum(1).tolist() == [1, 3, 15]


def test_indices_slices_and_softmax():
    n = batch(torch.jagged)
    assert torch.equal(n[:, :, 1].values(), n.values()[:, 1])
    assert torch.equal(n[1:].unbind()[1], n.unbind()[2])
    assert [tuple(p.shape) for p in n[:, :2].unbind()] == [(2, 6), (1, 6), (2, 6)]
    torch.testing.assert_close(n.softmax(1).unbind()[2], n.unbind()[2].softmax(0))


def test_what_is_not_supported_says_so():
    n = batch(torch.jagged)
    with pytest.raises(NotImplementedError, match="cumsum: not supported for nested tensors"):
        torch.cumsum(n, 1)
    with pytest.raises(TypeError, match="ragged dimension"):
        range(n.size(1))
