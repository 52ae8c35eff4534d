//! The losses of connectionist temporal classification by an engine's own kernels. `nn` has the loss, and computes it
//! on the host for engines without.

use crate::Tensor;
use crate::autograd::{Saved, no_grad, record, recording};
use rushlight_core::backend::call;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, ErrorKind, Result};
use std::collections::HashMap;

/// Target sequences with blanks before, between and after their labels.
pub struct CtcTargets<'a> {
    /// The classes of each sequence's states.
    pub states: &'a [Vec<usize>],
    /// How many steps each input has.
    pub steps: &'a [usize],
    /// The blank class.
    pub blank: usize,
    /// Whether targets that are too long for their inputs have a zero gradient.
    pub zero_infinity: bool,
}

impl CtcTargets<'_> {
    /// States as the engine reads them, `[batch, longest, 3]`: class, next state of the same class or -1, and whether
    /// it is the first of its class; and `[batch, 2]`: steps and states.
    fn tables(&self) -> Result<[Tensor; 2]> {
        let longest = self.states.iter().map(Vec::len).max().unwrap_or(0);
        let mut table = vec![0i32; self.states.len() * longest * 3];
        for (rows, states) in table.chunks_mut((longest * 3).max(1)).zip(self.states) {
            // The next state of each class, from the end.
            let mut next = HashMap::new();
            for (s, &class) in states.iter().enumerate().rev() {
                rows[3 * s] = class as i32;
                rows[3 * s + 1] = next.insert(class, s as i32).unwrap_or(-1);
            }
            for (class, first) in next {
                rows[3 * first as usize + 2] = (class != self.blank) as i32;
            }
        }
        let lengths: Vec<i32> =
            self.steps.iter().zip(self.states).flat_map(|(&steps, s)| [steps as i32, s.len() as i32]).collect();
        Ok([
            Tensor::from_slice(&table, [self.states.len(), longest, 3])?,
            Tensor::from_slice(&lengths, [self.states.len(), 2])?,
        ])
    }
}

/// Losses `[batch]` from log-probabilities `[steps, batch, classes]`; `None` if the device's engine has no kernel.
pub fn ctc_losses(log_probs: &Tensor, targets: &CtcTargets) -> Result<Option<Tensor>> {
    let &[steps, batch, _] = log_probs.shape() else { return Ok(None) };
    if log_probs.device().is_cpu() || !matches!(log_probs.dtype(), DType::F32 | DType::F64) || batch == 0 {
        return Ok(None);
    }
    let done = no_grad(|| -> Result<_> {
        let x = log_probs.detach().contiguous()?;
        let [states, lengths] = targets.tables()?;
        let (states, lengths) = (states.to(x.device())?, lengths.to(x.device())?);
        let alphas = x.uninit_like(&[batch, steps, states.size(1)?], x.dtype())?;
        let loss = x.uninit_like(&[batch], x.dtype())?;
        loss.run(call::Ctc {
            log_probs: x.engine_view(),
            states: states.engine_view(),
            lengths: lengths.engine_view(),
            alphas: alphas.engine_view(),
            loss: loss.engine_view(),
        })?;
        Ok((states, lengths, alphas, loss))
    });
    let (states, lengths, alphas, loss) = match done {
        Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(None),
        done => done?,
    };
    if !recording(&[log_probs]) {
        return Ok(Some(loss));
    }
    let (blank, zero_infinity) = (targets.blank, targets.zero_infinity);
    let (x, cost) = (Saved::input(log_probs), loss.detach());
    record("ctc_loss", &[log_probs], &loss, move |ctx, dy| {
        let (x, dy) = (ctx.get(&x)?.detach().contiguous()?, dy.detach().contiguous()?);
        let dx = x.uninit_like(x.shape(), x.dtype())?;
        dx.run(call::CtcBackward {
            blank,
            zero_infinity,
            log_probs: x.engine_view(),
            states: states.engine_view(),
            lengths: lengths.engine_view(),
            alphas: alphas.engine_view(),
            loss: cost.engine_view(),
            dloss: dy.engine_view(),
            dx: dx.engine_view(),
        })?;
        Ok(smallvec![Some(dx)])
    })?;
    Ok(Some(loss))
}
