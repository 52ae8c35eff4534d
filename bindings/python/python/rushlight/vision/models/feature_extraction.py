"""Intermediate values of a model: ``torchvision.models.feature_extraction``, by tracing it (``torch.fx``)."""

import re
from collections import OrderedDict
from copy import deepcopy

from ... import fx, nn

__all__ = ["create_feature_extractor", "get_graph_node_names"]


class NodePathTracer(fx.Tracer):
    """A tracer that records the module of each step."""

    def __init__(self, *args, leaf_modules=None, **kwargs):
        super().__init__(*args, **kwargs)
        self._leaves = tuple(leaf_modules or ())
        self.current_module_qualname, self.node_to_qualname = "", OrderedDict()

    def is_leaf_module(self, m, qualname):
        return super().is_leaf_module(m, qualname) or isinstance(m, self._leaves)

    def call_module(self, m, forward, args, kwargs):
        before = self.current_module_qualname
        try:
            self.current_module_qualname = self.path_of_module(m)
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.current_module_qualname = before

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *_):
        made = super().create_proxy(kind, target, args, kwargs, name, type_expr)
        self.node_to_qualname[made.node] = self._qualname(self.current_module_qualname, made.node)
        return made

    def _qualname(self, module, node):
        known = set(self.node_to_qualname.values())
        if node.op == "call_module":
            name = module
        else:
            plain = re.sub(r"_\d+$", "", node.name) if node.op != "placeholder" else node.name
            name = f"{module}.{plain}" if module else plain
        if name not in known:
            return name
        count = 1
        while f"{name}_{count}" in known:
            count += 1
        return f"{name}_{count}"


def _trace(model, kwargs, concrete_args=None):
    tracer = NodePathTracer(**(kwargs or {}))
    return tracer, tracer.trace(model, concrete_args=concrete_args)


def get_graph_node_names(model, tracer_kwargs=None, suppress_diff_warning=False, concrete_args=None):
    """Names of all steps of a model, in training and in evaluation."""
    was, found = model.training, []
    for training in (True, False):
        tracer, _ = _trace(model.train(training), tracer_kwargs, concrete_args)
        found.append(list(tracer.node_to_qualname.values()))
    model.train(was)
    return tuple(found)


class DualGraphModule(fx.GraphModule):
    """A module with one graph for training and one for evaluation."""

    def __init__(self, root, train_graph, eval_graph, class_name="GraphModule"):
        nn.Module.__init__(self)
        type(self).__name__ = class_name
        from ...fx.graph_module import _copy_attribute

        for graph in (train_graph, eval_graph):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attribute(root, self, node.target)
        object.__setattr__(self, "train_graph", train_graph)
        object.__setattr__(self, "eval_graph", eval_graph)
        self.training = root.training
        self.graph = train_graph if self.training else eval_graph

    def train(self, mode=True):
        if mode != self.training:
            self.graph = self.train_graph if mode else self.eval_graph
        return super().train(mode)

    def __deepcopy__(self, memo):
        return DualGraphModule(deepcopy(self._bare(), memo), deepcopy(self.train_graph), deepcopy(self.eval_graph), type(self).__name__)

    def _bare(self):
        bare = nn.Module()
        bare.__dict__.update({key: value for key, value in self.__dict__.items() if key not in ("_graph", "_code", "train_graph", "eval_graph")})
        return bare


def create_feature_extractor(
    model, return_nodes=None, train_return_nodes=None, eval_return_nodes=None, tracer_kwargs=None, suppress_diff_warning=False, concrete_args=None,
):
    """A module that returns intermediate values of a model by their names: ``{"layer1": "features"}`` or ``["layer1"]``."""
    if (return_nodes is None) == (train_return_nodes is None) or (train_return_nodes is None) != (eval_return_nodes is None):
        raise ValueError("give either `return_nodes`, or both `train_return_nodes` and `eval_return_nodes`")

    def named(nodes):
        return {str(k): str(v) for k, v in nodes.items()} if isinstance(nodes, dict) else {str(n): str(n) for n in nodes}

    wanted = {True: named(return_nodes if train_return_nodes is None else train_return_nodes), False: named(return_nodes if eval_return_nodes is None else eval_return_nodes)}
    was, graphs = model.training, {}
    for training in (True, False):
        tracer, graph = _trace(model.train(training), tracer_kwargs, concrete_args)
        graphs[training] = _cut(graph, tracer.node_to_qualname, wanted[training])
    model.train(was)
    made = DualGraphModule(model, graphs[True], graphs[False], type(model).__name__)
    return made


def _cut(graph, qualnames, wanted):
    """A graph that ends with the requested values."""
    found = {}
    for query, name in wanted.items():
        matches = [node for node, known in qualnames.items() if known == query or known.startswith(query + ".")]
        if not matches:
            raise ValueError(f"node: '{query}' is not present in model. Hint: use `get_graph_node_names` to make sure the `return_nodes` you specified are present.")
        # A module's value is that of its last step.
        found[name] = matches[-1]
    graph.erase_node(graph.output_node())
    graph.output(found)
    graph.eliminate_dead_code()
    return graph
