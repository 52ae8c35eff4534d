"""Recurrent layers and cells."""

from __future__ import annotations

import math
import numbers
import warnings

from ... import _C
from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

Tensor = _C.Tensor
_torch = _C._torch

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_NETWORKS = {"LSTM": _torch.lstm, "GRU": _torch.gru, "RNN_TANH": _torch.rnn_tanh, "RNN_RELU": _torch.rnn_relu}
_CELLS = {"LSTM": _torch.lstm_cell, "GRU": _torch.gru_cell, "RNN_TANH": _torch.rnn_tanh_cell, "RNN_RELU": _torch.rnn_relu_cell}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Permutes sequences."""
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """The common part of recurrent layers: weights by layer and direction, and checks of inputs."""

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"]

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device=None, dtype=None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than 1, "
                f"but got dropout={dropout} and num_layers={num_layers}", stacklevel=3,
            )
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._make_weights({"device": device, "dtype": dtype})
        self.reset_parameters()

    def _make_weights(self, factory: dict) -> None:
        rows = _GATES[self.mode] * self.hidden_size
        state = self.proj_size or self.hidden_size
        directions = 2 if self.bidirectional else 1
        self._flat_weights_names: list = []
        self._all_weights: list = []
        for layer in range(self.num_layers):
            features = self.input_size if layer == 0 else state * directions
            for direction in range(directions):
                shapes = {"weight_ih": (rows, features), "weight_hh": (rows, state)}
                if self.bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if self.proj_size > 0:
                    shapes["weight_hr"] = (self.proj_size, self.hidden_size)
                suffix = f"_l{layer}" + ("_reverse" if direction == 1 else "")
                names = [name + suffix for name in shapes]
                for name, shape in zip(names, shapes.values()):
                    setattr(self, name, Parameter(_torch.empty(shape, **factory)))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)

    @property
    def _flat_weights(self) -> list:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list:
        """The weights by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """No effect: weights are not packed."""

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def __setstate__(self, state: dict) -> None:
        # PyTorch also has the weights in a list, which is created on demand here.
        super().__setstate__({k: v for k, v in state.items() if k not in ("_flat_weights", "_flat_weight_refs")})
        self.__dict__.setdefault("proj_size", 0)

    # Inputs.

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """An error if the input does not fit."""
        if not input.dtype.is_floating_point:
            raise ValueError(f"RNN: Expected input to be of a floating point dtype, got {input.dtype}")
        if batch_sizes is not None and input.dim() != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}")

    def _states_shape(self, batch: int, features: int) -> tuple:
        return (self.num_layers * (2 if self.bidirectional else 1), batch, features)

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple:
        """The shape of the hidden state."""
        return self._states_shape(self._batch(input, batch_sizes), self.proj_size or self.hidden_size)

    def _batch(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return input.size(0) if self.batch_first else input.size(1)

    def check_hidden_size(self, hx: Tensor, expected: tuple, msg: str = "Expected hidden size {}, got {}") -> None:
        """An error if a state does not fit."""
        if tuple(hx.size()) != tuple(expected):
            raise RuntimeError(msg.format(expected, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden, batch_sizes: Tensor | None) -> None:
        """An error if input and state do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation: Tensor | None):
        """States in the order of sorted sequences."""
        if permutation is None:
            return hx
        return apply_permutation(hx, permutation)

    def _forward(self, input, states: tuple | None, widths: tuple):
        """Output and last states, each of ``[layers * directions, batch, width]``."""
        name = type(self).__name__
        packed = isinstance(input, PackedSequence)
        batch_sizes = sorted_indices = unsorted_indices = None
        lifted = False
        if packed:
            input, batch_sizes, sorted_indices, unsorted_indices = input
        else:
            if input.dim() not in (2, 3):
                raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
            lifted = input.dim() == 2
            if lifted:
                input = input.unsqueeze(0 if self.batch_first else 1)
            if states is not None:
                wanted = 2 if lifted else 3
                if any(state.dim() != wanted for state in states):
                    found = ", ".join(f"{state.dim()}-D" for state in states)
                    raise RuntimeError(
                        f"For {'unbatched 2-D' if lifted else 'batched 3-D'} input, hx should also be {wanted}-D but got {found} tensor"
                    )
                if lifted:
                    states = tuple(state.unsqueeze(1) for state in states)
        if states is None:
            batch = self._batch(input, batch_sizes)
            states = tuple(
                _torch.zeros(self._states_shape(batch, width), dtype=input.dtype, device=input.device) for width in widths
            )
            checked = states if len(states) > 1 else states[0]
        else:
            checked = states if len(states) > 1 else states[0]
            checked = self.permute_hidden(checked, sorted_indices)
            states = checked if len(states) > 1 else (checked,)
        self.check_forward_args(input, checked, batch_sizes)
        if input.shape[0 if packed or not self.batch_first else 1] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        given = (input,) if batch_sizes is None else (input, batch_sizes)
        settings = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        order = (self.batch_first,) if batch_sizes is None else ()
        hx = list(states) if len(states) > 1 else states[0]
        out, *last = _NETWORKS[self.mode](*given, hx, self._flat_weights, *settings, *order)
        states = tuple(last)
        if packed:
            out = PackedSequence(out, batch_sizes, sorted_indices, unsorted_indices)
        elif lifted:
            out = out.squeeze(0 if self.batch_first else 1)
            states = tuple(state.squeeze(1) for state in states)
        found = states if len(states) > 1 else states[0]
        return out, self.permute_hidden(found, unsorted_indices)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text


class RNN(RNNBase):
    """Layers of ``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or with ``relu``."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device=None, dtype=None, **kwargs,
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if kwargs:
            raise TypeError(f"RNN.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity
        mode = "RNN_" + nonlinearity.upper()
        super().__init__(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)

    def forward(self, input, hx: Tensor | None = None):
        return self._forward(input, None if hx is None else (hx,), (self.hidden_size,))


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device=None, dtype=None, **kwargs,
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if kwargs:
            raise TypeError(f"GRU.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)

    def forward(self, input, hx: Tensor | None = None):
        return self._forward(input, None if hx is None else (hx,), (self.hidden_size,))


class LSTM(RNNBase):
    """Long short-term memory.

    >>> import rushlight as torch
    >>> lstm = torch.nn.LSTM(input_size=3, hidden_size=4, num_layers=2, batch_first=True)
    >>> out, (h, c) = lstm(torch.ones(5, 7, 3))
    >>> out.shape, h.shape
    (torch.Size([5, 7, 4]), torch.Size([2, 5, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, proj_size: int = 0, device=None, dtype=None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple:
        """The shape of the cell state."""
        return self._states_shape(self._batch(input, batch_sizes), self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx, permutation: Tensor | None):
        if permutation is None:
            return hx
        return apply_permutation(hx[0], permutation), apply_permutation(hx[1], permutation)

    def forward(self, input, hx: tuple | None = None):
        return self._forward(input, None if hx is None else tuple(hx), (self.proj_size or self.hidden_size, self.hidden_size))


# Cells.


class RNNCellBase(Module):
    """The common part of cells: their weights."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device=None, dtype=None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(_torch.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(_torch.empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(_torch.empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, mode: str, input: Tensor, states: tuple | None, count: int) -> tuple:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if states is not None and any(state.dim() not in (1, 2) for state in states):
            raise ValueError(f"{name}: Expected hidden to be 1D or 2D")
        lifted = input.dim() == 1
        if lifted:
            input = input.unsqueeze(0)
            states = None if states is None else tuple(state.unsqueeze(0) for state in states)
        if states is None:
            states = (_torch.zeros((input.size(0), self.hidden_size), dtype=input.dtype, device=input.device),) * count
        hx = states if count > 1 else states[0]
        found = _CELLS[mode](input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        found = found if count > 1 else (found,)
        return tuple(state.squeeze(0) for state in found) if lifted else found

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text + (f", nonlinearity={nonlinearity}" if nonlinearity != "tanh" else "")


class RNNCell(RNNCellBase):
    """One step of an ``RNN``."""

    __constants__ = [*RNNCellBase.__constants__, "nonlinearity"]

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device=None, dtype=None) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step("RNN_" + self.nonlinearity.upper(), input, None if hx is None else (hx,), 1)[0]


class GRUCell(RNNCellBase):
    """One step of a ``GRU``."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """One step of an ``LSTM``."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple | None = None) -> tuple[Tensor, Tensor]:
        return self._step("LSTM", input, None if hx is None else tuple(hx), 2)
