//! A long short-term memory over all steps of a sequence, where the engine does a step in one pass. Nothing here is
//! recorded: the recurrent layers have the derivative.

use crate::Tensor;
use rushlight_core::backend::{Activation, Packed, call};
use rushlight_core::layout::Layout;
use rushlight_core::{Dims, Error, Result};

/// The results of [`lstm_forward`]; rows are ordered by step.
pub struct LstmStates {
    /// The outputs, `[steps * batch, hidden]`.
    pub outputs: Tensor,
    /// The cell states, of the same shape.
    pub cells: Tensor,
    /// The gates after activation, `[steps * batch, 4 * hidden]`.
    pub gates: Tensor,
}

/// The rows of one step.
fn at(t: &Tensor, step: usize, batch: usize) -> Layout {
    t.layout().slice(0, step * batch, batch, 1)
}

/// The weight that every step multiplies by.
struct Weight<'a> {
    tensor: &'a Tensor,
    layout: Layout,
    packed: Option<Packed>,
}

impl<'a> Weight<'a> {
    /// Number of steps from which the weight is packed, an estimate: packing reads and writes it once.
    const STEPS: usize = 4;

    fn new(tensor: &'a Tensor, layout: Layout, batch: usize, steps: usize) -> Result<Self> {
        let packed = match steps {
            ..Self::STEPS => None,
            _ => tensor.backend().pack_weight(tensor.view_as(&layout), batch)?,
        };
        Ok(Weight { tensor, layout, packed })
    }

    /// `out = a @ weight + beta * out` for contiguous matrices, each with the layout of a part of its tensor.
    fn multiply(&self, a: (&Tensor, &Layout), out: (&Tensor, &Layout), beta: f64) -> Result<()> {
        if let Some(packed) = &self.packed {
            let (packed, activation) = (packed.clone(), Activation::None);
            let (a, b, out_view) = (a.0.view_as(a.1), self.tensor.view_as(&self.layout), out.0.view_as(out.1));
            return out.0.run(call::PackedMatMul { packed, beta, activation, a, b, bias: None, out: out_view });
        }
        let lift = |layout: &Layout| layout.unsqueeze(0);
        let (la, lb, lo) = (lift(a.1), lift(&self.layout), lift(out.1));
        let plain = call::MatMul::plain(a.0.view_as(&la), self.tensor.view_as(&lb), out.0.view_as(&lo));
        out.0.run(call::MatMul { beta, ..plain })
    }
}

fn check(sums: &Tensor, weight: &Tensor, first: [&Tensor; 2], steps: usize) -> Result<[usize; 2]> {
    let &[batch, hidden] = first[0].shape() else {
        return Err(Error::shape(format!("lstm: a state of shape {:?}", first[0].shape())));
    };
    let rows = batch.checked_mul(steps).ok_or_else(|| Error::shape("lstm: more rows than memory can address"))?;
    let fits = sums.shape() == [rows, 4 * hidden]
        && weight.shape() == [4 * hidden, hidden]
        && first[1].shape() == [batch, hidden]
        && [weight, first[0], first[1]].iter().all(|t| t.dtype() == sums.dtype() && t.device() == sums.device());
    if !fits {
        return Err(Error::shape(format!(
            "lstm: {steps} steps of sums {:?}, weight {:?} and states {:?}, {:?} do not fit",
            sums.shape(),
            weight.shape(),
            first[0].shape(),
            first[1].shape()
        )));
    }
    Ok([batch, hidden])
}

/// An LSTM over the steps in the given order; `None` if the engine has no kernel for a step.
/// `sums` (`[steps * batch, 4 * hidden]`) are the inputs' and biases' contributions to the gates; `first` are the first
/// output and cell state. Without `keep` there will be no backward, and the gates overwrite `sums`.
#[doc(hidden)]
pub fn lstm_forward(
    sums: &Tensor,
    weight_hh: &Tensor,
    first: [&Tensor; 2],
    order: &[usize],
    keep: bool,
) -> Result<Option<LstmStates>> {
    let [batch, hidden] = check(sums, weight_hh, first, order.len())?;
    if sums.numel() == 0 {
        return Ok(None);
    }
    let (h, c) = (first[0].contiguous()?, first[1].contiguous()?);
    let rows = order.len() * batch;
    let gates = if keep { sums.detach().copy()? } else { sums.detach().contiguous()? };
    let outputs = sums.uninit_like(&[rows, hidden], sums.dtype())?;
    let cells = sums.uninit_like(&[if keep { rows } else { 2 * batch }, hidden], sums.dtype())?;
    let weight = Weight::new(weight_hh, weight_hh.layout().transpose(0, 1), batch, order.len())?;
    let (mut h_at, mut c_at) = ((&h, h.layout().clone()), (&c, c.layout().clone()));
    for (i, &step) in order.iter().enumerate() {
        let gate = at(&gates, step, batch);
        let cell_row = if keep { step } else { i % 2 };
        weight.multiply((h_at.0, &h_at.1), (&gates, &gate), 1.0)?;
        let (out, cell) = (at(&outputs, step, batch), at(&cells, cell_row, batch));
        gates.run(call::LstmCell {
            before: c_at.0.view_as(&c_at.1),
            c: cells.view_as(&cell),
            h: outputs.view_as(&out),
            gates: gates.view_as(&gate),
        })?;
        (h_at, c_at) = ((&outputs, out), (&cells, cell));
    }
    let cells = match keep {
        true => cells.clone(),
        // The last one, at the place of the last step.
        false => cells.narrow(0, ((order.len() + 1) % 2 * batch) as isize, batch)?,
    };
    Ok(Some(LstmStates { outputs, cells, gates }))
}

/// The gradients of [`lstm_forward`]: of the sums, and of the first output and cell state. `dout` is that of all
/// outputs, `dlast` those of the last output and cell state.
#[doc(hidden)]
pub fn lstm_backward(
    states: &LstmStates,
    weight_hh: &Tensor,
    first_cell: &Tensor,
    order: &[usize],
    dout: Option<&Tensor>,
    dlast: [Option<&Tensor>; 2],
) -> Result<Option<[Tensor; 3]>> {
    let [batch, hidden] = check(&states.gates, weight_hh, [first_cell, first_cell], order.len())?;
    let mut shape = Dims::from_slice(first_cell.shape());
    let gradient = |t: Option<&Tensor>| match t {
        Some(t) => t.detach().copy(),
        None => first_cell.detach().zeros_like(),
    };
    let (dh, dc) = (gradient(dlast[0])?, gradient(dlast[1])?);
    let (first, dout) = (first_cell.contiguous()?, dout.map(Tensor::contiguous).transpose()?);
    shape[0] = order.len() * batch;
    if dout.as_ref().is_some_and(|t| t.shape() != &shape[..]) || dh.shape() != [batch, hidden] {
        return Err(Error::shape("lstm: gradients do not fit the outputs"));
    }
    let dgates = states.gates.uninit_like(states.gates.shape(), states.gates.dtype())?;
    let weight = Weight::new(weight_hh, weight_hh.layout().clone(), batch, order.len())?;
    for (i, &step) in order.iter().enumerate().rev() {
        let (gate, cell) = (at(&states.gates, step, batch), at(&states.cells, step, batch));
        let before = match i {
            0 => (&first, first.layout().clone()),
            _ => (&states.cells, at(&states.cells, order[i - 1], batch)),
        };
        let outer = dout.as_ref().map(|t| (t, at(t, step, batch)));
        dgates.run(call::LstmCellBackward {
            gates: states.gates.view_as(&gate),
            before: before.0.view_as(&before.1),
            c: states.cells.view_as(&cell),
            dh: dh.engine_view(),
            outer: outer.as_ref().map(|(t, layout)| t.view_as(layout)),
            dgates: dgates.view_as(&gate),
            dc: dc.engine_view(),
        })?;
        weight.multiply((&dgates, &gate), (&dh, dh.layout()), 0.0)?;
    }
    Ok(Some([dgates, dh, dc]))
}
