"""Graphs of programs: tracing, graphs as data, graphs as code, features from inside models."""

import copy
import pickle

import pytest

import rushlight as torch
from rushlight import fx, nn

F = nn.functional


def helper(x, n):
    return x * n if n > 1 else x


fx.wrap("helper")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.inner = nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 6))
        self.scale, self.shift = nn.Parameter(torch.full((6,), 2.0)), nn.Buffer(torch.ones(6))
        self.constant = torch.arange(3.0)

    def forward(self, x, *, negate: bool = False):
        y = self.inner(self.linear(x)) * self.scale + self.shift
        first, second = y.chunk(2, dim=-1)
        y = torch.cat([first - self.constant, F.max_pool1d(second.unsqueeze(1), 1).squeeze(1)], dim=1)
        torch._assert(y.shape[0] > 0, "empty")
        return {"out": helper(y, 3)[..., 1:], "rows": y.size(0)}


def test_a_traced_module_computes_the_same():
    model, x = Block(), torch.randn(5, 4)
    traced = fx.symbolic_trace(model)
    expected = model(x)["out"]
    for way in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced)), fx.Interpreter(traced).run, fx.Transformer(traced).transform()):
        found = way(x)
        assert torch.equal(found["out"], expected) and found["rows"] == 5
    traced(x)["out"].sum().backward()
    assert model.linear.weight.grad is not None, "parameters are the model's own"
    assert set(traced.state_dict()) >= {"linear.weight", "inner.1.bias", "scale", "shift"}
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == ["linear", "inner.0", "inner.1"]
    assert "helper" in traced.code and "torch.cat(" in traced.code
    with pytest.raises(AssertionError, match="empty"):
        traced(torch.randn(0, 4))


def test_graphs_can_be_changed():
    traced = fx.symbolic_trace(lambda x: torch.relu(x).neg() + 1)
    for node in traced.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.sigmoid
        if node.op == "call_method" and node.target == "neg":
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(torch.exp, (node.args[0],))
            node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    x = torch.randn(3)
    assert torch.equal(traced(x), x.sigmoid().exp() + 1)
    dead = traced.graph.find_nodes(op="placeholder")[0]
    with traced.graph.inserting_after(dead):
        traced.graph.call_function(torch.cos, (dead,))
    assert traced.graph.eliminate_dead_code() and not traced.graph.find_nodes(op="call_function", target=torch.cos)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        traced.graph.erase_node(dead)
    graph = fx.Graph()
    a = graph.placeholder("a")
    graph.output(graph.call_method("mul", (a, 3)))
    assert fx.GraphModule({}, graph)(torch.ones(1)) == 3
    assert "placeholder" in str(graph) or "graph(" in str(graph)


def test_what_cannot_be_traced():
    with pytest.raises(fx.TraceError, match="control flow"):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(fx.TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: [row for row in x])
    with pytest.raises(RuntimeError, match="len"):
        fx.symbolic_trace(lambda x: len(x))
    kept = fx.symbolic_trace(lambda x, flag: x if flag else -x, concrete_args={"flag": False})
    assert kept(torch.ones(1)) == -1


def test_leaves_shapes_and_arguments():
    class Leaf(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Sequential) or super().is_leaf_module(m, name)

    model = Block()
    graph = Leaf().trace(model)
    assert [n.target for n in graph.nodes if n.op == "call_module"] == ["linear", "inner"]
    from rushlight.fx.passes.shape_prop import ShapeProp

    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.Tanh()))
    ShapeProp(traced).propagate(torch.randn(2, 4))
    assert [tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes if n.op != "output"] == [(2, 4), (2, 3), (2, 3)]

    def many(a, *rest, **named):
        return a + rest[0] * named["k"]

    traced = fx.symbolic_trace(many)
    assert traced(torch.ones(1), torch.ones(1), k=2) == 3


def test_features_from_inside_a_model():
    from rushlight.vision.models import resnet18
    from rushlight.vision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    model = resnet18().eval()
    train, evaluate = get_graph_node_names(model)
    assert "layer1.0.relu" in evaluate and "layer2.0.conv1" in train
    made = create_feature_extractor(model, {"layer1": "low", "layer2.1.bn1": "high"})
    x = torch.randn(1, 3, 32, 32)
    found = made(x)
    low = model.layer1(model.maxpool(model.relu(model.bn1(model.conv1(x)))))
    assert torch.equal(found["low"], low) and found["high"].shape == (1, 128, 4, 4)
    assert made.train()(x)["low"].shape == low.shape
    with pytest.raises(ValueError, match="is not present"):
        create_feature_extractor(model, ["nope"])


def test_replace_pattern():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x, a, b):
            first = torch.cat([a, b]).sum()
            second = torch.cat([a, b]).sum()
            return x + first + torch.max(second) + torch.relu(self.linear(x) + 1)

    traced = torch.fx.symbolic_trace(Model())
    inputs = torch.ones(2, 4), torch.ones(2), torch.full((3,), 2.0)
    expected = traced(*inputs)
    found = torch.fx.replace_pattern(traced, lambda a, b: torch.cat([a, b]).sum(), lambda a, b: torch.stack([a.sum(), b.sum()]).sum())
    assert [match.anchor.op for match in found] == ["call_method", "call_method"]
    traced.graph.lint()
    assert not traced.graph.find_nodes(op="call_function", target=torch.cat)
    assert torch.allclose(traced(*inputs), expected)
    # A value that is used outside of the pattern stays.
    assert not torch.fx.replace_pattern(traced, lambda x: torch.relu(x + 1) + x, lambda x: x)
    assert len(torch.fx.replace_pattern(traced, lambda x: torch.relu(x + 1), lambda x: torch.clamp(x, min=-1) + 1)) == 1
    assert torch.allclose(traced(*inputs), expected)
    with pytest.raises(ValueError, match="inputs"):
        torch.fx.replace_pattern(traced, lambda x: torch.max(x), lambda x, y: x)
