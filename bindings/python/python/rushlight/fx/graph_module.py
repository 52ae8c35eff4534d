"""``GraphModule``: a graph that can be called."""

import copy
import linecache

from .graph import Graph

#: The key of a module's metadata that a copy keeps.
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"

__all__ = ["GraphModule"]


def _copy_attribute(source, target, path):
    """Copies a module or tensor to the same path of another module and creates the modules on the path."""
    from ..nn import Module, Parameter
    from .. import Tensor

    *prefix, name = path.split(".")
    for part in prefix:
        inner = getattr(target, part, None)
        if inner is None:
            setattr(target, part, inner := Module())
        if source is not None:
            if getattr(source, part) is inner:
                # The module was copied as a whole.
                return
            source = getattr(source, part)
        target = inner
    value = getattr(source, name)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        persistent = name not in getattr(source, "_non_persistent_buffers_set", ())
        target.register_buffer(name, value, persistent=persistent)
    else:
        setattr(target, name, value)


def _assign(module, path, value):
    from ..nn import Module, Parameter
    from .. import Tensor

    *prefix, name = path.split(".")
    for part in prefix:
        if not hasattr(module, part):
            setattr(module, part, Module())
        module = getattr(module, part)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


_count = [0]


def _compiled(code):
    """The function a text defines; tracebacks show its lines."""
    _count[0] += 1
    name = f"<torch.fx graph {_count[0]}>"
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(True), name)
    space = dict(code.globals)
    exec(compile(code.src, name, "exec"), space)
    return space["forward"]


def _make_class():
    from ..nn import Module

    class GraphModule(Module):
        """A module whose ``forward`` is a graph's code. Change ``graph``, then call ``recompile()``."""

        def __new__(cls, *args, **kwargs):
            # Each has its own class, which holds its code.
            own = next((base for base in cls.__mro__ if "_graph_module_base" in base.__dict__), cls)
            return object.__new__(type(own.__name__, (cls,), {"__module__": cls.__module__}))

        _graph_module_base = True

        def __init__(self, root, graph, class_name="GraphModule"):
            super().__init__()
            type(self).__name__ = class_name
            paths = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
            if isinstance(root, Module):
                if hasattr(root, "training"):
                    self.training = root.training
                for path in paths:
                    _copy_attribute(root, self, path)
            else:
                missing = [path for path in paths if path not in root]
                if missing:
                    raise RuntimeError(f"a node refers to {missing[0]}, but the dictionary of attributes has no such entry")
                for path in sorted(paths, key=lambda path: path.count(".")):
                    _assign(self, path, root[path])
            self.graph = graph

        @property
        def graph(self):
            return self._graph

        @graph.setter
        def graph(self, g):
            if not isinstance(g, Graph):
                raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
            object.__setattr__(self, "_graph", g)
            g.owning_module = self
            self.recompile()

        @property
        def code(self):
            return self._code

        def recompile(self):
            """Makes ``forward`` from the current graph."""
            code = self._graph.python_code()
            object.__setattr__(self, "_code", code.src)
            type(self).forward = _compiled(code)
            return code

        def add_submodule(self, target, m):
            """Sets a module at a path. Returns whether it succeeded."""
            *prefix, name = target.split(".")
            module = self
            for part in prefix:
                if not hasattr(module, part):
                    setattr(module, part, Module())
                module = getattr(module, part)
                if not isinstance(module, Module):
                    return False
            module.add_module(name, m)
            return True

        def delete_submodule(self, target):
            """Removes the module at a path. Returns whether there was one."""
            *prefix, name = target.split(".")
            try:
                owner = self.get_submodule(".".join(prefix))
            except AttributeError:
                return False
            if not isinstance(getattr(owner, name, None), Module):
                return False
            delattr(owner, name)
            return True

        def delete_all_unused_submodules(self):
            """Removes modules that no step of the graph uses."""
            used = set()
            for node in self.graph.nodes:
                if node.op in ("call_module", "get_attr"):
                    parts = node.target.split(".")
                    used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                    if node.op == "call_module":
                        used.update(f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules())
            for name in [name for name, _ in self.named_modules() if name and name not in used]:
                self.delete_submodule(name)

        def print_readable(self, print_output=True, **options):
            """The code as text."""
            if print_output:
                print(self._code)
            return self._code

        def __deepcopy__(self, memo):
            made = GraphModule.__new__(GraphModule)
            memo[id(self)] = made
            Module.__init__(made)
            type(made).__name__ = type(self).__name__
            for key, value in self.__dict__.items():
                if key not in ("_graph", "_code"):
                    made.__dict__[key] = copy.deepcopy(value, memo)
            made.graph = copy.deepcopy(self._graph)
            return made

        def __copy__(self):
            return GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)

        def __reduce__(self):
            state = {key: value for key, value in self.__dict__.items() if key not in ("_graph", "_code")}
            return _rebuild, (state, self._graph, type(self).__name__)

        def __str__(self):
            return f"{super().__repr__()}\n\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"

    GraphModule.__module__, GraphModule.__qualname__ = __name__, "GraphModule"
    return GraphModule


def _rebuild(state, graph, name):
    from ..nn import Module

    made = GraphModule.__new__(GraphModule)
    Module.__init__(made)
    type(made).__name__ = name
    made.__dict__.update(state)
    made.graph = graph
    return made


GraphModule = _make_class()
