//! A cell over sequences of one length as a single op: its backward is one product of all steps' gradients with all
//! states, where a tape of steps would add up one product per step.
//!
//! The factors of a step's gradient, the derivatives of gates and activations, do not depend on later steps:
//! they are computed for the whole sequence before the walk back.

use super::weights::{Kind, RNNNonlinearity, State, step};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::{Backward, Context, Function, apply, grad, is_grad_enabled};
use rushlight_tensor::{LstmStates, Tensor, autocast_dtype, cat, lstm_backward, lstm_forward, stack};

/// Outputs and last state of a cell over `steps` steps, if this op covers the case: `f32` or `f64` throughout.
pub(super) fn run(
    kind: Kind,
    from_input: &Tensor,
    first: &State,
    weight_hh: &Tensor,
    bias_hh: Option<&Tensor>,
    steps: usize,
    reverse: bool,
) -> Option<Result<(Tensor, State)>> {
    let dtype = from_input.dtype();
    let mut inputs = vec![from_input, weight_hh, &first.h];
    inputs.extend(&first.c);
    inputs.extend(bias_hh);
    let plain = autocast_dtype().is_none() && matches!(dtype, DType::F32 | DType::F64);
    if !plain || from_input.numel() == 0 || inputs.iter().any(|t| t.dtype() != dtype) {
        return None;
    }
    let keep = is_grad_enabled() && inputs.iter().any(|t| t.requires_grad());
    let outputs = apply(Sequence { kind, steps, reverse, keep }, &inputs);
    Some(outputs.map(|outputs| {
        let mut outputs = outputs.into_iter();
        let mut next = || outputs.next().unwrap_or_else(|| from_input.clone());
        let (out, h) = (next(), next());
        (out, State { h, c: first.c.as_ref().map(|_| next()) })
    }))
}

struct Sequence {
    kind: Kind,
    steps: usize,
    reverse: bool,
    /// Whether there will be a backward.
    keep: bool,
}

/// The inputs, in the order of [`run`].
struct Inputs<'a> {
    from_input: &'a Tensor,
    weight: &'a Tensor,
    first: State,
    bias: Option<&'a Tensor>,
}

impl Sequence {
    fn inputs<'a>(&self, inputs: &[&'a Tensor]) -> Result<Inputs<'a>> {
        let (&[from_input, weight, h], rest) =
            inputs.split_first_chunk().ok_or_else(|| Error::autograd("recurrent sequence: inputs are missing"))?;
        let (c, bias) = if self.kind == Kind::Lstm { (rest.first(), None) } else { (None, rest.first()) };
        let first = State { h: h.clone(), c: c.map(|&c| c.clone()) };
        Ok(Inputs { from_input, weight, first, bias: bias.copied() })
    }

    /// Steps in the order they are taken.
    fn order(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let (steps, reverse) = (self.steps, self.reverse);
        (0..steps).map(move |i| if reverse { steps - 1 - i } else { i })
    }

    /// The parts of all steps in the order of time.
    fn joined(&self, parts: &[Tensor]) -> Result<Tensor> {
        let in_time: Vec<&Tensor> = if self.reverse { parts.iter().rev().collect() } else { parts.iter().collect() };
        cat(&in_time, 0)
    }

    /// `[steps * batch, n]` as `[steps, batch, n / size, size]`.
    fn by_gate(&self, t: &Tensor, size: usize) -> Result<Tensor> {
        let (rows, features) = (t.shape()[0], t.shape()[1]);
        t.reshape([self.steps, rows / self.steps, features / size, size])
    }

    /// The initial state of each step, `[steps, batch, hidden]`: the first state, then all states but the last.
    fn before(&self, first: &Tensor, states: &Tensor) -> Result<Tensor> {
        let &[batch, hidden] = first.shape() else {
            return Err(Error::shape(format!("recurrent sequence: a state of shape {:?}", first.shape())));
        };
        let states = states.reshape([self.steps, batch, hidden])?;
        let first = first.unsqueeze(0)?;
        if self.reverse {
            cat(&[&states.narrow(0, 1, self.steps - 1)?, &first], 0)
        } else {
            cat(&[&first, &states.narrow(0, 0, self.steps - 1)?], 0)
        }
    }

    /// The same by recorded ops, for a backward that is recorded itself.
    fn composed(&self, inputs: &Inputs) -> Result<Vec<Tensor>> {
        let rows = inputs.from_input.split(inputs.first.h.shape()[0], 0)?;
        let (mut state, mut outputs) = (inputs.first.clone(), Vec::with_capacity(self.steps));
        for t in self.order() {
            state = step(self.kind, &rows[t], &state, inputs.weight, inputs.bias, None)?;
            outputs.push(state.h.clone());
        }
        Ok([self.joined(&outputs)?, state.h].into_iter().chain(state.c).collect())
    }

    /// The backward of [`Sequence::composed`], recorded.
    fn recorded_backward(&self, inputs: &[&Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        // Views of the inputs: the gradients that come in may depend on the inputs too, which is not to be counted
        // here.
        let views = inputs.iter().map(|t| t.narrow(0, 0, t.shape()[0])).collect::<Result<Vec<_>>>()?;
        let outputs = self.composed(&self.inputs(&views.iter().collect::<Vec<_>>())?)?;
        let mut total: Option<Tensor> = None;
        for (output, dy) in outputs.iter().zip(grads).filter_map(|(y, dy)| Some((y, dy.as_ref()?))) {
            let part = output.mul(dy)?.sum(..)?;
            total = Some(total.map_or(Ok(part.clone()), |sum| sum.add(&part))?);
        }
        let Some(total) = total else { return Ok(vec![None; inputs.len()]) };
        let wanted: Vec<&Tensor> = views.iter().filter(|t| t.requires_grad()).collect();
        let mut found =
            grad(&[&total], &wanted, Backward::default().create_graph(true).allow_unused(true))?.into_iter();
        Ok(views.iter().map(|t| if t.requires_grad() { found.next().flatten() } else { None }).collect())
    }
}

/// `y - y²`, the derivative of a sigmoid by its value.
fn sigmoid_slope(y: &Tensor) -> Result<Tensor> {
    y.addcmul(y, y, -1.0)
}

/// `1 - y²`, the derivative of tanh by its value.
fn tanh_slope(y: &Tensor) -> Result<Tensor> {
    y.square()?.neg()?.add_(1.0).cloned()
}

/// A gradient that is not there is zero.
fn plus(a: Option<&Tensor>, b: Tensor) -> Result<Tensor> {
    a.map_or(Ok(b.clone()), |a| a.add(&b))
}

impl Function for Sequence {
    fn name(&self) -> &'static str {
        "recurrent_sequence"
    }

    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Inputs { from_input, weight, first, bias } = self.inputs(inputs)?;
        let (batch, hidden) = (first.h.shape()[0], first.h.shape()[1]);
        if let Some(c) = &first.c {
            let order: Vec<usize> = self.order().collect();
            if let Some(states) = lstm_forward(from_input, weight, [&first.h, c], &order, self.keep)? {
                return self.lstm_outputs(ctx, inputs, states, batch);
            }
        }
        let rows = from_input.split(batch, 0)?;
        let transposed = weight.t()?;
        let (mut h, mut c) = (first.h, first.c);
        let (mut outputs, mut cells, mut gates, mut candidates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for t in self.order() {
            let part = |t: &Tensor, at: usize, n: usize| t.narrow(1, (at * hidden) as isize, n * hidden);
            match (self.kind, c.take()) {
                (Kind::Gru, _) => {
                    let from_state = h.linear(weight, bias)?;
                    let gate = part(&rows[t], 0, 2)?.add(&part(&from_state, 0, 2)?)?;
                    gate.sigmoid_()?;
                    let new = part(&rows[t], 2, 1)?.addcmul(&part(&gate, 0, 1)?, &part(&from_state, 2, 1)?, 1.0)?;
                    new.tanh_()?;
                    h = new.lerp(&h, &part(&gate, 1, 1)?)?;
                    if self.keep {
                        gates.push(gate);
                        cells.push(part(&from_state, 2, 1)?);
                        candidates.push(new);
                    }
                }
                (Kind::Lstm, Some(cell)) => {
                    let gate = rows[t].addmm(&h, &transposed, 1.0, 1.0)?;
                    part(&gate, 0, 2)?.sigmoid_()?;
                    part(&gate, 2, 1)?.tanh_()?;
                    part(&gate, 3, 1)?.sigmoid_()?;
                    let cell = part(&gate, 1, 1)?.mul(&cell)?;
                    cell.addcmul_(&part(&gate, 0, 1)?, &part(&gate, 2, 1)?, 1.0)?;
                    h = cell.tanh()?.mul_(&part(&gate, 3, 1)?)?.clone();
                    if self.keep {
                        gates.push(gate);
                        cells.push(cell.clone());
                    }
                    c = Some(cell);
                }
                (kind, _) => {
                    h = rows[t].addmm(&h, &transposed, 1.0, 1.0)?;
                    if kind == Kind::Plain(RNNNonlinearity::Relu) {
                        h.relu_()?
                    } else {
                        h.tanh_()?
                    };
                }
            }
            outputs.push(h.clone());
        }
        let out = self.joined(&outputs)?;
        if self.keep {
            let kept = [&gates, &cells, &candidates].into_iter().filter(|parts| !parts.is_empty());
            let kept = kept.map(|parts| self.joined(parts)).collect::<Result<Vec<_>>>()?;
            ctx.save_for_backward(&inputs.iter().copied().chain([&out]).chain(&kept).collect::<Vec<_>>());
        }
        Ok([out, h].into_iter().chain(c).collect())
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let count = 3 + match self.kind {
            Kind::Lstm => 1,
            Kind::Gru => saved.len() - 7,
            Kind::Plain(_) => 0,
        };
        let (inputs, kept) = saved.split_at(count);
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        if is_grad_enabled() {
            return self.recorded_backward(&inputs, grads);
        }
        let Inputs { weight, first, bias, .. } = self.inputs(&inputs)?;
        let &[batch, hidden] = first.h.shape() else {
            return Err(Error::shape(format!("recurrent sequence: a state of shape {:?}", first.h.shape())));
        };
        let states = self.before(&first.h, &kept[0])?;
        let given = |i: usize| grads.get(i).and_then(Option::as_ref);
        if let (Some(c), [outputs, gates, cells]) = (&first.c, kept) {
            let order: Vec<usize> = self.order().collect();
            let kept = LstmStates { outputs: outputs.clone(), cells: cells.clone(), gates: gates.clone() };
            if let Some([sums, dh, dc]) = lstm_backward(&kept, weight, c, &order, given(0), [given(1), given(2)])? {
                let of_weight = sums.t()?.mm(&states.reshape([self.steps * batch, hidden])?)?;
                return Ok(vec![Some(sums), Some(of_weight), Some(dh), Some(dc)]);
            }
        }
        let outer = given(0).map(|dy| dy.reshape([self.steps, batch, hidden])).transpose()?;
        let outer = |t: usize| outer.as_ref().map(|dy| dy.select(0, t as isize)).transpose();
        let or_zero = |i: usize| given(i).map_or_else(|| first.h.zeros_like(), |dy| Ok(dy.clone()));
        let mut dh = or_zero(1)?;
        let mut dc = None;
        // `[steps, batch, gates, hidden]`: factors at first, which the walk back turns into gradients.
        let (slopes, mut input_slopes) = self.slopes(kept, &states, &first)?;
        let mut dhs = Vec::new();
        let gates = slopes.shape()[2];
        for t in self.order().rev() {
            let at = |x: &Tensor| x.select(0, t as isize);
            let slope = at(&slopes)?;
            dh = plus(outer(t)?.as_ref(), dh)?;
            let passed_on = match (self.kind, &input_slopes) {
                (Kind::Lstm, Some(through_output)) => {
                    let cell = dc.take().map_or_else(|| or_zero(2), Ok)?.addcmul(&dh, &at(through_output)?, 1.0)?;
                    slope.narrow(1, 0, 3)?.mul_(&cell.unsqueeze(1)?)?;
                    slope.select(1, 3)?.mul_(&dh)?;
                    let forget = at(&self.by_gate(&kept[1], hidden)?)?.select(1, 1)?;
                    dc = Some(cell.mul(&forget)?);
                    None
                }
                (Kind::Gru, _) => {
                    slope.mul_(&dh.unsqueeze(1)?)?;
                    dhs.push(dh.clone());
                    Some(dh.mul(&at(&self.by_gate(&kept[1], hidden)?)?.select(1, 1)?)?)
                }
                _ => {
                    slope.mul_(&dh.unsqueeze(1)?)?;
                    None
                }
            };
            let slope = slope.reshape([batch, gates * hidden])?;
            dh = passed_on.map_or_else(|| slope.mm(weight), |direct| direct.addmm(&slope, weight, 1.0, 1.0))?;
        }
        let rows = self.steps * batch;
        let of_state = slopes.reshape([rows, gates * hidden])?;
        let of_input = match (self.kind, input_slopes.take()) {
            (Kind::Gru, Some(new)) => {
                dhs.reverse();
                let dh = self.joined(&dhs)?.reshape([self.steps, batch, hidden])?;
                let new = new.mul(&dh)?.unsqueeze(2)?;
                cat(&[&slopes.narrow(2, 0, 2)?, &new], 2)?.reshape([rows, gates * hidden])?
            }
            _ => of_state.clone(),
        };
        let of_weight = of_state.t()?.mm(&states.reshape([rows, hidden])?)?;
        let of_bias = bias.map(|_| of_state.sum(0)).transpose()?;
        let all = [Some(of_input), Some(of_weight), Some(dh)].into_iter();
        Ok(all.chain(dc.map(Some)).chain(of_bias.map(Some)).collect())
    }
}

impl Sequence {
    /// The outputs of an LSTM, and the values saved for backward.
    fn lstm_outputs(
        &self,
        ctx: &mut Context,
        inputs: &[&Tensor],
        states: LstmStates,
        batch: usize,
    ) -> Result<Vec<Tensor>> {
        let last = self.order().next_back().unwrap_or(0) * batch;
        let h = states.outputs.narrow(0, last as isize, batch)?.copy()?;
        let c = match self.keep {
            true => states.cells.narrow(0, last as isize, batch)?.copy()?,
            false => states.cells.clone(),
        };
        if self.keep {
            let kept = [&states.outputs, &states.gates, &states.cells];
            ctx.save_for_backward(&inputs.iter().copied().chain(kept).collect::<Vec<_>>());
        }
        Ok(vec![states.outputs, h, c])
    }

    /// The derivatives of a step, `[steps, batch, gates, hidden]`, and the other factors of its gradients: of
    /// an LSTM, the derivative of the output by the cell state; of a GRU, that of the new state by the input.
    fn slopes(&self, kept: &[Tensor], states: &Tensor, first: &State) -> Result<(Tensor, Option<Tensor>)> {
        let hidden = first.h.shape()[1];
        match (self.kind, &first.c) {
            (Kind::Lstm, Some(c)) => {
                let gates = self.by_gate(&kept[1], hidden)?;
                let gate = |i: isize| gates.select(2, i);
                let (input, forget, new, output) = (gate(0)?, gate(1)?, gate(2)?, gate(3)?);
                let seen = kept[2].tanh()?.reshape(states.shape())?;
                let of_input = sigmoid_slope(&input)?.mul_(&new)?.clone();
                let of_forget = sigmoid_slope(&forget)?.mul_(&self.before(c, &kept[2])?)?.clone();
                let of_new = tanh_slope(&new)?.mul_(&input)?.clone();
                let of_output = sigmoid_slope(&output)?.mul_(&seen)?.clone();
                let through_output = tanh_slope(&seen)?.mul_(&output)?.clone();
                Ok((stack(&[&of_input, &of_forget, &of_new, &of_output], 2)?, Some(through_output)))
            }
            (Kind::Gru, _) => {
                let gates = self.by_gate(&kept[1], hidden)?;
                let (reset, update) = (gates.select(2, 0)?, gates.select(2, 1)?);
                let (from_state, new) = (kept[2].reshape(states.shape())?, kept[3].reshape(states.shape())?);
                // `(1 - update) * (1 - new²)`
                let slope = tanh_slope(&new)?;
                let of_new = slope.addcmul(&slope, &update, -1.0)?;
                let of_reset = sigmoid_slope(&reset)?.mul_(&of_new)?.mul_(&from_state)?.clone();
                let of_update = sigmoid_slope(&update)?.mul_(&states.sub(&new)?)?.clone();
                Ok((stack(&[&of_reset, &of_update, &of_new.mul(&reset)?], 2)?, Some(of_new)))
            }
            (kind, _) => {
                let relu = kind == Kind::Plain(RNNNonlinearity::Relu);
                let slope = if relu { kept[0].gt(0.0)?.to_dtype(kept[0].dtype())? } else { tanh_slope(&kept[0])? };
                Ok((self.by_gate(&slope, hidden)?, None))
            }
        }
    }
}
