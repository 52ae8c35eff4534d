//! Cross-entropy (`kernels/cross_entropy.cu`).

use crate::device::Gpu;
use crate::families::row_norm::{address, parameter_dtype};
use crate::families::softmax::float;
use crate::launch::kernel::{Defines, Family, Function, Key, launch};
use crate::launch::rows::Rows;
use rushlight_core::backend::CrossEntropy;
use rushlight_core::{DType, Error, Result, View};

/// Maximum threads per row.
const MAX_THREADS: u16 = 256;

/// Matches `Spec` in `cross_entropy.cu`.
#[repr(C)]
struct Spec {
    logits: u64,
    target: u64,
    weight: u64,
    rows: usize,
    classes: usize,
    ignore_index: i64,
    smoothing: f64,
}

impl Gpu {
    fn cross_entropy_spec(&self, call: &'static str, s: &CrossEntropy, also: &[u64]) -> Result<(Spec, Rows, Function)> {
        let &[rows, classes] = s.logits.shape() else {
            return Err(Error::shape(format!(
                "{call}: logits have shape {:?}, expected [rows, classes]",
                s.logits.shape()
            )));
        };
        float(call, s.logits.dtype())?;
        let parameter = parameter_dtype(call, s.logits.dtype(), &[s.weight])?;
        let spec = Spec {
            logits: s.logits.ptr() as u64,
            target: s.target.ptr() as u64,
            weight: address(s.weight),
            rows,
            classes,
            ignore_index: s.ignore_index,
            smoothing: s.label_smoothing,
        };
        let mut addresses = vec![spec.logits];
        addresses.extend(also);
        // Rows are read once, so nothing is cached; several small blocks hide more latency than one large block.
        // A row of log-probabilities is read at one place; its gradient is written whole.
        let read = if s.log_probabilities && also.is_empty() { 1 } else { classes };
        let share = Rows::new(s.logits.dtype(), read, &addresses);
        let share = Rows { steps: 0, threads: share.threads.min(MAX_THREADS), ..share };
        let smooth = s.label_smoothing > 0.0;
        let [a, b, c, d] = share.tags();
        let tags = [smooth as u16, parameter as u16, a, b, c, d, s.log_probabilities as u16];
        let key = Key::new(Family::CrossEntropy, call, tags);
        let function = self.function(key, || defines(share, smooth, s.log_probabilities, parameter))?;
        Ok((spec, share, function))
    }

    pub fn cross_entropy(&self, s: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
        let (spec, share, function) = self.cross_entropy_spec("cross_entropy", s, &[])?;
        let (a, b, c, fault) = (loss.ptr() as u64, row_weight.ptr() as u64, lse.ptr() as u64, self.fault());
        launch!(self, function, share.grid(spec.rows)?; spec, a, b, c, fault)
    }

    pub fn cross_entropy_backward(&self, s: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
        let to = dlogits.ptr() as u64;
        let (spec, share, function) = self.cross_entropy_spec("cross_entropy_backward", s, &[to])?;
        let (a, b, fault) = (lse.ptr() as u64, dloss.ptr() as u64, self.fault());
        launch!(self, function, share.grid(spec.rows)?; spec, a, b, to, fault)
    }
}

pub fn defines(rows: Rows, smooth: bool, given: bool, parameter: DType) -> Defines {
    rows.defines().define("SMOOTH", smooth as u8).define("GIVEN", given as u8).dtype("P", parameter)
}
