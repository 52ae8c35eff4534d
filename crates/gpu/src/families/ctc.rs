//! Connectionist temporal classification (`kernels/ctc.cu`).

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use rushlight_core::backend::call;
use rushlight_core::{DType, Result, View};

impl Gpu {
    pub fn ctc(&self, c: &call::Ctc<View>) -> Result<()> {
        let [steps, batch, classes] = [0, 1, 2].map(|d| c.log_probs.shape()[d]);
        let most = c.states.shape()[1];
        let dtype = c.log_probs.dtype();
        let key = Key::new(Family::Ctc, "ctc_alphas", [dtype as u16]);
        let function = self.function(key, || defines("FORWARD", dtype))?;
        let [x, states, lengths, alphas, loss] =
            [c.log_probs, c.states, c.lengths, c.alphas, c.loss].map(|v| v.ptr() as u64);
        let grid = Grid::line(batch, 256)?;
        launch!(self, function, grid; x, states, lengths, alphas, loss, steps, batch, classes, most)
    }

    pub fn ctc_backward(&self, c: &call::CtcBackward<View>) -> Result<()> {
        let [steps, batch, classes] = [0, 1, 2].map(|d| c.log_probs.shape()[d]);
        if steps * batch == 0 {
            return Ok(());
        }
        let most = c.states.shape()[1];
        let dtype = c.log_probs.dtype();
        let kernel = |entry| self.function(Key::new(Family::Ctc, entry, [dtype as u16]), || defines("BACKWARD", dtype));
        let (back, gradient) = (kernel("ctc_betas")?, kernel("ctc_gradient")?);
        let room = self.scratch(batch * steps * most * dtype.size())?;
        let [x, states, lengths, alphas, loss, dloss, dx] =
            [c.log_probs, c.states, c.lengths, c.alphas, c.loss, c.dloss, c.dx].map(|v| v.ptr() as u64);
        let (betas, blank, zero_infinity) = (room.ptr, c.blank, c.zero_infinity as u32);
        let grid = Grid::line(batch, 256)?;
        launch!(self, back, grid; x, states, lengths, betas, steps, batch, classes, most)?;
        let grid = Grid::line(steps * batch, 128)?;
        launch!(self, gradient, grid;
            x, states, lengths, alphas, betas, loss, dloss, dx, steps, batch, classes, most, blank, zero_infinity)
    }
}

/// Definitions of one pass.
pub fn defines(pass: &str, dtype: DType) -> Defines {
    Defines::default().define(pass, 1).define("WIDE", 1).dtype("T", dtype)
}
