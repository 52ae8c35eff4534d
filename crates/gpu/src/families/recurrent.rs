//! One step of a long short-term memory (`kernels/recurrent.cu`).

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use rushlight_core::backend::call;
use rushlight_core::{DType, Error, Result, View};

const THREADS: usize = 128;

pub fn defines(dtype: DType) -> Defines {
    Defines::default().define("WIDE", 1).dtype("T", dtype).define("W", wide_type(dtype))
}

/// Elements of the state and columns of it; an error where the views do not fit.
fn sizes(gates: View, states: &[View]) -> Result<[usize; 2]> {
    let &[batch, hidden] = states[0].shape() else {
        return Err(Error::shape(format!("lstm_cell: a state of shape {:?}", states[0].shape())));
    };
    let fits = |v: &View| v.shape() == [batch, hidden] && v.layout().is_contiguous() && v.dtype() == gates.dtype();
    let whole = gates.shape() == [batch, 4 * hidden] && gates.layout().is_contiguous() && gates.dtype().is_float();
    if !whole || !states.iter().all(fits) {
        return Err(Error::shape(format!(
            "lstm_cell: {} gates {:?} and states of {:?} do not fit, or are not contiguous",
            gates.dtype(),
            gates.shape(),
            states[0].shape()
        )));
    }
    Ok([batch * hidden, hidden])
}

impl Gpu {
    fn recurrent(&self, entry: &'static str, dtype: DType) -> Result<Function> {
        self.function(Key::new(Family::Recurrent, entry, [dtype as u16]), || defines(dtype))
    }

    pub fn lstm_cell(&self, gates: View, before: View, c: View, h: View) -> Result<bool> {
        let [count, hidden] = sizes(gates, &[before, c, h])?;
        if count == 0 {
            return Ok(true);
        }
        let function = self.recurrent("lstm_cell", gates.dtype())?;
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        let [gates, before, c, h] = [gates, before, c, h].map(|v| v.ptr() as u64);
        launch!(self, function, grid; gates, before, c, h, count, hidden)?;
        Ok(true)
    }

    pub fn lstm_cell_backward(&self, step: &call::LstmCellBackward<View>) -> Result<bool> {
        let (dc, dgates) = (step.dc, step.dgates);
        let states = [step.before, step.c, step.dh, dc, step.outer.unwrap_or(dc)];
        let [count, hidden] = sizes(step.gates, &states)?;
        sizes(dgates, &states)?;
        if count == 0 {
            return Ok(true);
        }
        let function = self.recurrent("lstm_cell_backward", step.gates.dtype())?;
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        let [gates, before, c, dh, dc, dgates] =
            [step.gates, step.before, step.c, step.dh, dc, dgates].map(|v| v.ptr() as u64);
        let outer = step.outer.map_or(0, |v| v.ptr() as u64);
        launch!(self, function, grid; gates, before, c, dh, outer, dc, dgates, count, hidden)?;
        Ok(true)
    }
}
