"""Names that libraries ask for: modules that raise on use, local hubs, futures, trees, flexible attention."""

import importlib
import math
import os

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.utils import _pytree as pytree


def test_modules_that_raise_on_use_can_be_imported():
    names = (
        "distributed.fsdp.wrap distributed.tensor.parallel distributed.checkpoint.state_dict distributed.algorithms.ddp_comm_hooks.default_hooks export fft sparse nested "
        "masked ao.quantization _higher_order_ops.associative_scan fx.experimental.symbolic_shapes fx.passes.infra.pass_base utils.cpp_extension numa.binding "
        "utils.data.datapipes.iter.combinatorics onnx.symbolic_opset9 _dynamo.exc _dynamo._trace_wrapped_higher_order_op jit.annotations utils._sympy.numbers"
    ).split()
    for name in names:
        assert importlib.import_module(f"rushlight.{name}").__name__ == f"rushlight.{name}"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rushlight.distributed.nope")
    with pytest.raises(AttributeError, match="nope"):
        torch.masked.nope
    from rushlight.distributed.rpc import RRef

    assert not isinstance(torch.ones(1), RRef) and isinstance(RRef, type)
    with pytest.raises(NotImplementedError, match="torch.distributed.rpc.RRef"):
        RRef()
    assert torch.distributed.is_available() and not torch.distributed.is_initialized()
    with pytest.raises(ValueError, match="process group"):
        torch.distributed.get_rank()


def test_names_of_torch():
    from rushlight._aliases import NAMES

    assert not [name for name in NAMES if not hasattr(torch, name)] and set(NAMES) <= set(dir(torch))
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.transpose_copy(x, 0, 1).is_contiguous() and torch.constant_pad_nd(x, (1, 1), 5)[0, 0] == 5
    a, b = [torch.ones(2), torch.ones(3)], [torch.full((2,), 2.0), torch.full((3,), 3.0)]
    torch._foreach_addcdiv_(a, b, b, 2.0)
    assert [t[0].item() for t in a] == [3, 3] and [t[0].item() for t in torch._foreach_mul(b, 2)] == [4, 6] and torch._foreach_norm(b)[0].item() == pytest.approx(math.sqrt(8))
    with pytest.raises(RuntimeError, match="same number of tensors"):
        torch._foreach_add(a, b[:1])
    u, s, v = torch.svd_lowrank(torch.diag(torch.tensor([5.0, 3.0, 1e-4])), q=2)
    assert torch.allclose(s, torch.tensor([5.0, 3.0]), atol=1e-3)
    nn.functional.relu.note = "kept"
    assert nn.functional.relu.note == "kept"
    del nn.functional.relu.note


def test_hub(tmp_path, monkeypatch):
    (tmp_path / "hubconf.py").write_text('dependencies = ["math"]\n\n\ndef net(size=2):\n    "A layer."\n    import rushlight\n\n    return rushlight.nn.Linear(size, 1)\n')
    assert torch.hub.list(str(tmp_path)) == ["net"] and torch.hub.help(str(tmp_path), "net") == "A layer."
    layer = torch.hub.load(str(tmp_path), "net", source="local", size=3)
    torch.save(layer.state_dict(), tmp_path / "net-01234567.pth")
    found = torch.hub.load_state_dict_from_url((tmp_path / "net-01234567.pth").as_uri(), model_dir=str(tmp_path / "cache"))
    assert torch.equal(found["weight"], layer.weight) and os.listdir(tmp_path / "cache") == ["net-01234567.pth"]
    with pytest.raises(RuntimeError, match="invalid hash"):
        torch.hub.load_state_dict_from_url((tmp_path / "net-01234567.pth").as_uri(), model_dir=str(tmp_path / "other"), check_hash=True)
    with pytest.raises(RuntimeError, match="not fetched"):
        torch.hub.load_state_dict_from_url("https://example.org/a.pth", model_dir=str(tmp_path))


def test_futures():
    a, b = torch.futures.Future(), torch.futures.Future()
    both = torch.futures.collect_all([a, b])
    doubled = a.then(lambda f: f.wait() * 2)
    a.set_result(2)
    assert doubled.value() == 4 and not both.done()
    b.set_result(3)
    assert torch.futures.wait_all(both.wait()) == [2, 3]
    failed = torch.futures.Future()
    failed.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        failed.wait()


def test_trees():
    from collections import OrderedDict, defaultdict, deque, namedtuple

    Point = namedtuple("Point", "x y")
    tree = {"a": [1, (2, 3)], "b": OrderedDict(z=4), "c": Point(5, {"k": 6}), "d": deque([7], maxlen=3), "e": None, "f": defaultdict(list, q=9)}
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, 4, 5, 6, 7, None, 9] and pytree.tree_unflatten(leaves, spec) == tree and spec.num_nodes == 17
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    assert paths[:2] == ["['a'][0]", "['a'][1][0]"] and paths[4] == "['c'].x"
    assert pytree.tree_map(lambda a, b: a + b, [1, [2]], [3, [4]]) == [4, [6]]
    with pytest.raises(ValueError, match="arity"):
        pytree.tree_map(lambda a, b: a, [1, 2], [1])
    other = pytree.tree_structure({"a": [0, 0], "b": (0,)})
    assert pytree.treespec_loads(pytree.treespec_dumps(other)) == other and pytree._broadcast_to_and_flatten(1, other) == [1, 1, 1]

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda children, _: Pair(*children))
    assert pytree.tree_map(lambda x: x + 1, Pair(1, [2])).b == [3]
    with pytest.raises(ValueError, match="already registered"):
        pytree.register_pytree_node(Pair, None, None)
    result = torch.ones(2, 3).max(0)
    assert pytree.tree_map(lambda t: t, result).values.shape == (3,)


def test_flexible_attention():
    from rushlight.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask, flex_attention

    q, k, v = (torch.randn(2, 4, 40, 8, requires_grad=True) for _ in range(3))
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 40, 40, BLOCK_SIZE=16)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(flex_attention(q, k, v, block_mask=causal), expected, atol=1e-5)
    assert causal.to_dense()[0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    bias = torch.randn(4)
    out, lse = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + bias[h] * (i - j), return_lse=True)
    distance = (torch.arange(40)[:, None] - torch.arange(40)).float()
    mask = (bias[:, None, None] * distance)[None]
    assert torch.allclose(out, nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask), atol=1e-5) and lse.shape == (2, 4, 40)
    out.sum().backward()
    assert q.grad is not None
    window = create_block_mask(and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j < 5), 1, 1, 40, 40, BLOCK_SIZE=8)
    assert window.sparsity() > causal.sparsity()
    again = BlockMask.from_kv_blocks(window.kv_num_blocks, window.kv_indices, window.full_kv_num_blocks, window.full_kv_indices, 8, lambda b, h, i, j: (i >= j) & (i - j < 5))
    assert torch.allclose(flex_attention(q, k, v, block_mask=again), flex_attention(q, k, v, block_mask=window), atol=1e-6)
    with pytest.raises(ValueError, match="enable_gqa"):
        flex_attention(q, k[:, :2], v[:, :2])
    assert flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True).shape == q.shape


def test_pipes():
    from rushlight.utils.data.datapipes.iter import IterableWrapper, Shuffler

    pipe = IterableWrapper(range(7)).map(lambda x: x * 2).filter(lambda x: x != 4)
    assert list(pipe) == [0, 2, 6, 8, 10, 12] == list(pipe) and [list(b) for b in pipe.batch(4)] == [[0, 2, 6, 8], [10, 12]]
    assert list(pipe.batch(2).unbatch()) == list(pipe) and list(IterableWrapper("ab").zip(IterableWrapper([1, 2]))) == [("a", 1), ("b", 2)]
    shuffled = Shuffler(IterableWrapper(range(20)), buffer_size=5)
    assert sorted(shuffled) == list(range(20)) and list(shuffled.set_seed(3)) == list(shuffled.set_seed(3)) and len(shuffled.batch(3, drop_last=True)) == 6
    assert [b.tolist() for b in IterableWrapper([1.0, 2.0]).batch(2).collate()] == [[1.0, 2.0]]


def test_absent_classes():
    absent = torch.distributed.rpc.RRef
    assert not hasattr(absent, "owner") and repr(torch.distributed.rpc.WorkerInfo.SOME_KIND) == "WorkerInfo.SOME_KIND"

    class Mine(absent):
        pass

    with pytest.raises(NotImplementedError, match="not supported"):
        Mine()
