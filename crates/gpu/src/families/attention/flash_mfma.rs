//! Attention of half types by AMD's MFMA instructions (`kernels/flash_mfma.cu`), for the shapes those kernels support;
//! `attention` handles the rest.

use crate::device::Gpu;
use crate::families::attention::flash::{Part, loads_well, stores_well};
use crate::families::attention::{Form, Saved, Spec, strides};
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::vendor::driver::MatrixUnits;
use rushlight_core::{DType, Result, View};

/// Threads per block, and queries or keys per block.
const THREADS: usize = 256;
const ROWS: usize = 64;
/// Head sizes that kernels are compiled for.
const HEADS: [usize; 5] = [16, 32, 64, 96, 128];

/// Keys or queries per step.
fn step(part: Part) -> usize {
    if part == Part::Forward { 64 } else { 32 }
}

/// Bytes of shared memory: tiles, their transposes, and per-query data for the keys' gradients.
fn shared(part: Part, d: usize) -> usize {
    let (plain, turned) = (step(part) * (d + 4) * 2, d * (step(part) + 4) * 2);
    match part {
        Part::Forward => plain + turned,
        Part::Queries => 2 * plain + turned,
        Part::Keys => 2 * plain + 2 * turned + step(part) * 8,
    }
}

pub fn defines(part: Part, d: usize, form: Form) -> Defines {
    part.defines(d, form).define("STEP", step(part))
}

/// The head size to compile for; `None` if the kernels do not support this problem.
fn head(gpu: &Gpu, spec: &Spec, form: &Form) -> Option<usize> {
    let inputs = [(spec.q, spec.q_strides), (spec.k, spec.k_strides), (spec.v, spec.v_strides)];
    let fits = gpu.matrix_units == MatrixUnits::Mfma
        && matches!(form.dtype, DType::F16 | DType::BF16)
        && spec.d == spec.dv
        && spec.l.max(spec.s) <= i32::MAX as usize / 2
        && spec.d.is_multiple_of(8)
        && inputs.iter().all(|&(ptr, strides)| loads_well(ptr, strides));
    HEADS.into_iter().find(|&d| spec.d <= d && spec.d > 0).filter(|_| fits)
}

impl Gpu {
    fn mfma_kernel(&self, part: Part, form: Form, d: usize) -> Result<Function> {
        let entry = ["mfma_forward", "mfma_queries", "mfma_keys"][part as usize];
        let tags = [form.dtype as u16, d as u16, form.causal as u16, form.mask, form.dropout as u16];
        let function = self.function(Key::new(Family::FlashMfma, entry, tags), || defines(part, d, form))?;
        self.allow_shared(function, shared(part, d))?;
        Ok(function)
    }

    /// Attention by MFMA. Returns whether the kernels support it.
    pub fn mfma(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(d) = head(self, spec, &form).filter(|_| stores_well(out)) else { return Ok(false) };
        let (to, [o0, o1, o2, _]) = (out.ptr() as u64, strides(out));
        let function = self.mfma_kernel(Part::Forward, form, d)?;
        let (spec, log_sum) = (*spec, lse.ptr() as u64);
        let grid = Grid::plane(spec.l.div_ceil(ROWS), spec.batch * spec.heads, THREADS)?;
        launch!(self, function, grid.shared(shared(Part::Forward, d)); spec, to, o0, o1, o2, log_sum)?;
        Ok(true)
    }

    /// Gradients of attention. Returns whether the kernels support them.
    pub fn mfma_backward(&self, spec: &Spec, form: Form, saved: &Saved, [dq, dk, dv]: [View; 3]) -> Result<bool> {
        let stores = [dq, dk, dv].iter().all(|&to| stores_well(to));
        let loads = loads_well(saved.dout, saved.dout_strides) && loads_well(saved.out, saved.out_strides);
        let Some(d) = head(self, spec, &form).filter(|_| stores && loads) else { return Ok(false) };
        let (to_q, to_k, to_v) = (dq.ptr() as u64, dk.ptr() as u64, dv.ptr() as u64);
        let ([q0, q1, q2, _], [k0, k1, k2, _], [v0, v1, v2, _]) = (strides(dq), strides(dk), strides(dv));
        let (spec, saved) = (*spec, *saved);
        // Two values per query.
        let scratch = self.scratch(spec.batch * spec.heads * spec.l * 8)?;
        let rows = scratch.ptr;
        let queries = self.mfma_kernel(Part::Queries, form, d)?;
        let grid = Grid::plane(spec.l.div_ceil(ROWS), spec.batch * spec.heads, THREADS)?;
        launch!(self, queries, grid.shared(shared(Part::Queries, d)); spec, saved, rows, to_q, q0, q1, q2)?;
        let keys = self.mfma_kernel(Part::Keys, form, d)?;
        let grid = Grid::plane(spec.s.div_ceil(ROWS), spec.batch * spec.kv_heads, THREADS)?;
        let grid = grid.shared(shared(Part::Keys, d));
        launch!(self, keys, grid; spec, saved, rows, to_k, to_v, k0, k1, k2, v0, v1, v2)?;
        Ok(true)
    }
}
