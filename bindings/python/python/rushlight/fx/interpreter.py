"""``Interpreter``: runs a graph step by step."""

from .graph import Graph
from .graph_module import GraphModule
from .node import map_arg
from .proxy import Proxy, TracerBase

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a ``GraphModule``. Override a kind's method to change how its steps run."""

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module, self.graph = module, module.graph if graph is None else graph
        self.garbage_collect_values = garbage_collect_values
        self.env, self.name, self.extra_traceback = {}, "Interpreter", True
        self._last = {}
        for node in self.graph.nodes:
            for argument in node.all_input_nodes:
                self._last[argument] = node

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """The output for these inputs."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback and hasattr(error, "add_note"):
                    error.add_note(f"While executing {node.format_node()}")
                raise
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for argument in node.all_input_nodes:
                    if self._last[argument] is node:
                        del self.env[argument]
        return None

    def run_node(self, n):
        """One step."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def boxed_run(self, args_list):
        """``run`` that empties the list of arguments."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def placeholder(self, target, args, kwargs):
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!") from None

    def get_attr(self, target, args, kwargs):
        return self.fetch_attr(target)

    def call_function(self, target, args, kwargs):
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target, args, kwargs):
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target, args, kwargs):
        return args[0]

    def fetch_attr(self, target):
        found = self.module
        for at, part in enumerate(target.split(".")):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(target.split('.')[: at + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n):
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args, n):
        def value(node):
            if node not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues")
            return self.env[node]

        return map_arg(args, value)


class _TransformerTracer(TracerBase):
    def __init__(self, graph):
        self.graph = graph

    def create_arg(self, a):
        from .. import Tensor

        return a if isinstance(a, Tensor) else super().create_arg(a)


class Transformer(Interpreter):
    """An interpreter over proxies: ``transform`` returns the graph that its methods record."""

    def __init__(self, module):
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _TransformerTracer(self.new_graph)

    def placeholder(self, target, args, kwargs):
        default = (next(iter(args)),) if args else ()
        return Proxy(self.new_graph.create_node("placeholder", target, default), self.tracer)

    def get_attr(self, target, args, kwargs):
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target, args, kwargs):
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target, args, kwargs):
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target, args, kwargs):
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self):
        """The transformed module."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            from .node import map_aggregate

            self.new_graph.output(map_aggregate(result, lambda value: value.node if isinstance(value, Proxy) else value))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
