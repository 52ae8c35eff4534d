"""Replaces every occurrence of a pattern in a graph."""

import copy
from collections import namedtuple

from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .node import Node

__all__ = ["Match", "replace_pattern", "replace_pattern_with_filters", "ReplacedPatterns"]

Match = namedtuple("Match", "anchor nodes_map")
ReplacedPatterns = namedtuple("ReplacedPatterns", "anchor nodes_map replacements")


def _graph(pattern):
    if isinstance(pattern, Graph):
        return pattern
    return pattern.graph if isinstance(pattern, GraphModule) else symbolic_trace(pattern).graph


class _Matcher:
    """Whether the nodes that lead to ``anchor`` have the shape of a pattern. Its placeholders match anything."""

    def __init__(self, pattern, outputs):
        self._pattern, self._outputs, self.nodes = pattern, outputs, {}

    def matches(self, pattern, node):
        if isinstance(pattern, Node) != isinstance(node, Node) and not (isinstance(pattern, Node) and pattern.op == "placeholder"):
            return False
        if not isinstance(pattern, Node):
            if isinstance(pattern, (list, tuple)):
                same = isinstance(node, (list, tuple)) and len(pattern) == len(node)
                return same and all(map(self.matches, pattern, node))
            if isinstance(pattern, dict):
                return isinstance(node, dict) and pattern.keys() == node.keys() and all(self.matches(pattern[k], node[k]) for k in pattern)
            return type(pattern) is type(node) and pattern == node
        if pattern in self.nodes:
            return self.nodes[pattern] is node
        self.nodes[pattern] = node
        if pattern.op == "placeholder":
            return True
        if pattern.op != node.op or not self._same_target(pattern, node):
            return False
        return self.matches(list(pattern.args), list(node.args)) and self.matches(dict(pattern.kwargs), dict(node.kwargs))

    @staticmethod
    def _same_target(pattern, node):
        if pattern.op in ("call_function", "call_method", "output"):
            return pattern.target == node.target
        # A module or an attribute has another path in the pattern; its name decides.
        return str(pattern.target).rsplit(".", 1)[-1] == str(node.target).rsplit(".", 1)[-1]

    def is_closed(self):
        """Whether no outside node uses an intermediate value of the match."""
        inside = {n for p, n in self.nodes.items() if p.op != "placeholder"}
        for pattern, node in self.nodes.items():
            if pattern.op in ("placeholder", "get_attr") or pattern in self._outputs:
                continue
            if any(user not in inside for user in node.users):
                return False
        return True


def _results(graph):
    value = graph.output_node().args[0]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _find(graph, pattern):
    """Matches that do not overlap, in order."""
    outputs, taken, found = [n for n in _results(pattern) if isinstance(n, Node)], set(), []
    if not outputs or all(n.op == "placeholder" for n in outputs):
        raise ValueError("replace_pattern: the pattern computes nothing")
    anchor = outputs[-1]
    for node in graph.nodes:
        matcher = _Matcher(pattern, set(outputs))
        if node.op in ("placeholder", "output") or not matcher.matches(anchor, node):
            continue
        # Results beside the anchor must belong to the same match.
        if any(out not in matcher.nodes for out in outputs) or not matcher.is_closed():
            continue
        inside = {n for p, n in matcher.nodes.items() if p.op not in ("placeholder", "get_attr")}
        if inside & taken:
            continue
        taken |= inside
        found.append((node, matcher.nodes))
    return found


def replace_pattern_with_filters(gm, pattern, replacement=None, match_filters=None, ignore_literals=False, *, replacement_callback=None):
    """``replace_pattern`` of the matches that all filters ``f(match, original_graph, pattern_graph)`` accept."""
    if ignore_literals:
        raise NotImplementedError("replace_pattern_with_filters: ignore_literals is not supported; write the numbers as arguments of the pattern")
    graph, pattern_graph = gm.graph, _graph(pattern)
    replaced, renamed = [], {}
    for anchor, nodes in _find(graph, pattern_graph):
        nodes = {p: renamed.get(n, n) if isinstance(n, Node) else n for p, n in nodes.items()}
        match = Match(anchor, nodes)
        if not all(accepts(match, graph, pattern_graph) for accepts in match_filters or ()):
            continue
        made = replacement if replacement_callback is None else replacement_callback(match, graph, pattern_graph)
        new_graph = _graph(made)
        inputs = [n for n in pattern_graph.nodes if n.op == "placeholder"]
        parameters = [n for n in new_graph.nodes if n.op == "placeholder"]
        if len(inputs) != len(parameters):
            raise ValueError(f"replace_pattern: the pattern has {len(inputs)} inputs and its replacement {len(parameters)}")
        values = {new: nodes[old] for new, old in zip(parameters, inputs) if old in nodes}
        if isinstance(made, GraphModule) or hasattr(made, "named_modules"):
            _adopt(gm, made, new_graph)
        inside = [n for p, n in nodes.items() if isinstance(n, Node) and p.op != "placeholder"]
        before = set(graph.nodes)
        order = {n: i for i, n in enumerate(graph.nodes)}
        # The replacement goes to the position of the last matched node, before all users of a result.
        with graph.inserting_before(max(inside, key=order.__getitem__)):
            returned = graph.graph_copy(new_graph, values)
        news = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        olds = _results(pattern_graph)
        if len(olds) != len(news):
            raise ValueError(f"replace_pattern: the pattern has {len(olds)} results and its replacement {len(news)}")
        for old, new in zip(olds, news):
            nodes[old].replace_all_uses_with(new)
            renamed[nodes[old]] = new
        for node in sorted(inside, key=order.__getitem__, reverse=True):
            if not node.users:
                graph.erase_node(node)
        replaced.append(ReplacedPatterns(anchor, nodes, [n for n in graph.nodes if n not in before]))
    if replaced:
        gm.recompile()
    return replaced


def replace_pattern(gm, pattern, replacement):
    """Replaces every occurrence of a pattern in a module's graph. Pattern and replacement are functions or modules with the same arguments;
    returns the matches."""
    return [Match(r.anchor, r.nodes_map) for r in replace_pattern_with_filters(gm, pattern, replacement)]


def _adopt(gm, made, graph):
    """Copies the attributes that the replacement refers to into the module."""
    for node in graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path, owner, value = str(node.target).split("."), gm, made
        for part in path:
            value = getattr(value, part)
        for part in path[:-1]:
            if not hasattr(owner, part):
                from ..nn import Module

                owner.add_module(part, Module())
            owner = getattr(owner, part)
        if not hasattr(owner, path[-1]):
            setattr(owner, path[-1], copy.deepcopy(value) if node.op == "call_module" else value)
