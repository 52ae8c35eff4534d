"""The form of a pass over a graph."""

import abc
from collections import namedtuple

__all__ = ["PassBase", "PassResult"]

PassResult = namedtuple("PassResult", "graph_module modified")


class PassBase(abc.ABC):
    """A pass: ``call`` gets a graph module and returns a ``PassResult``, or None if nothing changed."""

    def __call__(self, graph_module):
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module):
        """The pass itself."""

    def requires(self, graph_module):
        """Checks made before."""

    def ensures(self, graph_module):
        """Checks made after."""
