"""The steps of recurrent layers over rows that lie step by step, as in packed sequences."""

from __future__ import annotations

from ... import _C

Tensor = _C.Tensor
_torch = _C._torch
_linear = _C._nn.linear


class Cell:
    """The weights of one layer and direction, and one step with them. States are tuples: ``(h,)``, or ``(h, c)`` of an LSTM."""

    def __init__(self, mode: str, weight_ih, weight_hh, bias_ih=None, bias_hh=None, weight_hr=None):
        self.mode, self.weight_ih, self.weight_hh, self.weight_hr = mode, weight_ih, weight_hh, weight_hr
        self.bias_ih, self.bias_hh = bias_ih, bias_hh
        self.weight_hh_t = weight_hh.t()

    def from_input(self, rows: Tensor) -> Tensor:
        """The gates' share from the input: one product for all steps."""
        if self.bias_ih is None:
            return _linear(rows, self.weight_ih)
        # The hidden state's bias of a GRU is under the reset gate.
        bias = self.bias_ih if self.mode == "GRU" else self.bias_ih + self.bias_hh
        return _linear(rows, self.weight_ih, bias)

    def step(self, from_input: Tensor, states: tuple) -> tuple:
        """The new states from the gates' share from the input and the old states."""
        h = states[0]
        if self.mode == "GRU":
            hidden = from_input.shape[1] // 3
            x_gates, x_new = from_input.split_with_sizes([2 * hidden, hidden], 1)
            h_gates, h_new = _linear(h, self.weight_hh, self.bias_hh).split_with_sizes([2 * hidden, hidden], 1)
            reset, update = (x_gates + h_gates).sigmoid().chunk(2, 1)
            new = x_new.addcmul(reset, h_new).tanh()
            return (new.lerp(h, update),)
        gates = from_input.addmm(h, self.weight_hh_t)
        if self.mode == "LSTM":
            hidden = gates.shape[1] // 4
            both, candidate, output = gates.split_with_sizes([2 * hidden, hidden, hidden], 1)
            enter, forget = both.sigmoid().chunk(2, 1)
            c = (forget * states[1]).addcmul(enter, candidate.tanh())
            h = output.sigmoid() * c.tanh()
            return (h if self.weight_hr is None else _linear(h, self.weight_hr), c)
        return (gates.relu() if self.mode == "RNN_RELU" else gates.tanh(),)

    def over(self, rows: Tensor, batch_sizes: list, first: tuple, reverse: bool) -> tuple[Tensor, tuple]:
        """All steps, from the last one if ``reverse``: outputs and last states."""
        steps = self.from_input(rows).split_with_sizes(batch_sizes, 0)
        first = tuple(state.to(steps[0].dtype) for state in first)
        outputs: list = [None] * len(steps)
        active = 0 if reverse else batch_sizes[0]
        states = None if reverse else first
        # The last states of sequences that have ended, the latest end first.
        ended = []
        for at in range(len(steps) - 1, -1, -1) if reverse else range(len(steps)):
            size = batch_sizes[at]
            if states is None:
                states = tuple(state[:size] for state in first)
            elif size < active:
                ended.append(tuple(state[size:active] for state in states))
                states = tuple(state[:size] for state in states)
            elif size > active:
                # Backwards, sequences begin at their own end.
                states = tuple(_torch.cat([state, start[active:size]]) for state, start in zip(states, first))
            states = self.step(steps[at], states)
            outputs[at], active = states[0], size
        ended.append(states)
        last = states if len(ended) == 1 else tuple(_torch.cat(parts) for parts in zip(*reversed(ended)))
        return _torch.cat(outputs), last


def run(layer, input: Tensor, batch_sizes: Tensor | None, states: tuple) -> tuple[Tensor, tuple]:
    """All layers and directions of an ``RNNBase``: the output, shaped as the input, and the last states."""
    if batch_sizes is None:
        sequence = input.transpose(0, 1) if layer.batch_first else input
        length, batch = sequence.shape[:2]
        if length == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        rows, sizes = sequence.reshape(length * batch, -1), [batch] * length
    else:
        rows, sizes = input, batch_sizes.tolist()
    directions = 2 if layer.bidirectional else 1
    last = []
    weights = layer.all_weights
    for depth in range(layer.num_layers):
        if depth > 0 and layer.dropout > 0:
            rows = _C._nn.dropout(rows, layer.dropout, layer.training)
        outputs = []
        for direction in range(directions):
            place = depth * directions + direction
            given = list(weights[place])
            projection = given.pop() if layer.proj_size > 0 else None
            biases = given[2:] if layer.bias else (None, None)
            cell = Cell(layer.mode, given[0], given[1], *biases, projection)
            out, end = cell.over(rows, sizes, tuple(state[place] for state in states), direction == 1)
            outputs.append(out)
            last.append(end)
        rows = outputs[0] if directions == 1 else _torch.cat(outputs, 1)
    last = tuple(_torch.stack(parts) for parts in zip(*last))
    if batch_sizes is None:
        rows = rows.reshape(length, batch, -1)
        rows = rows.transpose(0, 1) if layer.batch_first else rows
    return rows, last
