"""Names of the nodes that ``grad_fn`` shows."""


class Node:
    """A step of the backward pass. It knows its name."""

    __slots__ = ("_name",)

    def __init__(self, name):
        self._name = name

    def name(self):
        return self._name

    def __repr__(self):
        return f"<{self._name} object at {id(self):#x}>"

    def __eq__(self, other):
        return isinstance(other, Node) and self._name == other._name

    def __hash__(self):
        return hash(self._name)

    @property
    def next_functions(self):
        raise NotImplementedError("grad_fn.next_functions is not supported: the graph is walked in Rust")
