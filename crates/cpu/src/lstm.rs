//! One step of a long short-term memory and its gradient, each in one pass.

use crate::isa::Isa;
use crate::lane::{clamp, exp_bounded, one_minus_exp};
use crate::{multiversion, pool};
use rushlight_core::backend::call;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result, View};

/// Minimum elements of the state per task.
const TASK: usize = 4 << 10;

/// Rows and columns of the state; `None` unless all tensors are `f32`.
fn sizes(gates: View, states: &[View]) -> Result<Option<[usize; 2]>> {
    let &[batch, hidden] = states[0].shape() else {
        return Err(Error::shape(format!("lstm_cell: a state of shape {:?}", states[0].shape())));
    };
    let fits = |v: &View| v.shape() == [batch, hidden] && v.layout().is_contiguous();
    if gates.shape() != [batch, 4 * hidden] || !gates.layout().is_contiguous() || !states.iter().all(fits) {
        return Err(Error::shape(format!(
            "lstm_cell: gates {:?} and states of {:?} do not fit, or are not contiguous",
            gates.shape(),
            states[0].shape()
        )));
    }
    Ok((gates.dtype() == DType::F32 && states.iter().all(|v| v.dtype() == DType::F32)).then_some([batch, hidden]))
}

/// See `call::LstmCell`.
pub fn lstm_cell(gates: View, before: View, c: View, h: View) -> Result<bool> {
    let Some([batch, hidden]) = sizes(gates, &[before, c, h])? else { return Ok(false) };
    let [gates, before, c, h] = [gates, before, c, h].map(|v| SendPtr::new(v.ptr().cast::<f32>()));
    pool::parallel_ranges(batch, TASK.div_ceil(hidden.max(1)), |from, to| {
        for row in from..to {
            let at = row * hidden;
            // SAFETY: rows are within the contiguous views; tasks have different ones, and the views do not overlap.
            unsafe { forward(hidden, gates.at(4 * at), before.at(at), c.at(at), h.at(at)) };
        }
    });
    Ok(true)
}

/// See `call::LstmCellBackward`.
pub fn lstm_cell_backward(step: &call::LstmCellBackward<View>) -> Result<bool> {
    let (dc, dgates) = (step.dc, step.dgates);
    let states = [step.before, step.c, step.dh, dc, step.outer.unwrap_or(dc)];
    let (Some([batch, hidden]), Some(_)) = (sizes(step.gates, &states)?, sizes(dgates, &states)?) else {
        return Ok(false);
    };
    let [gates, before, c, dh, dc, dgates] =
        [step.gates, step.before, step.c, step.dh, dc, dgates].map(|v| SendPtr::new(v.ptr().cast::<f32>()));
    let outer = step.outer.map(|v| SendPtr::new(v.ptr().cast::<f32>()));
    pool::parallel_ranges(batch, TASK.div_ceil(hidden.max(1)), |from, to| {
        for row in from..to {
            let at = row * hidden;
            // SAFETY: as above.
            unsafe {
                let outer = outer.map_or(std::ptr::null(), |v| v.at(at).cast_const());
                let inputs = [before.at(at).cast_const(), c.at(at), dh.at(at), outer];
                backward(hidden, gates.at(4 * at), inputs, dc.at(at), dgates.at(4 * at));
            }
        }
    });
    Ok(true)
}

/// The logistic function of a gate. It is constant below -87, where it is close to the smallest normal number.
#[inline(always)]
fn sigmoid<I: Isa>(x: f32) -> f32 {
    1.0 / (1.0 + exp_bounded::<I>(clamp(-x, -87.0, 87.0)))
}

/// Hyperbolic tangent as `(1 - e) / (1 + e)` with `e = exp(-2 |x|)`, within 2.5 units in the last place: fewer
/// instructions than the op's.
#[inline(always)]
fn tanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let m = one_minus_exp::<I>(clamp(-(a + a), -20.0, 0.0));
    (m / (2.0 - m)).copysign(x)
}

multiversion! {
    /// # Safety
    /// `n` elements at each pointer, four times as many at `gates`; they do not overlap.
    unsafe fn forward(n: usize, gates: *mut f32, before: *const f32, c: *mut f32, h: *mut f32) = forward_kernel;
}

#[inline(always)]
unsafe fn forward_kernel<I: Isa>(n: usize, gates: *mut f32, before: *const f32, c: *mut f32, h: *mut f32) {
    #[inline(always)]
    fn each<I: Isa>(gates: [&mut [f32]; 4], before: &[f32], c: &mut [f32], h: &mut [f32]) {
        let n = before.len();
        let [i, f, g, o] = gates.map(|gate| &mut gate[..n]);
        let (c, h) = (&mut c[..n], &mut h[..n]);
        for k in 0..n {
            // Separate calls: the compiler may not inline `map` of an array, which would prevent vectorisation.
            let (input, forget, output) = (sigmoid::<I>(i[k]), sigmoid::<I>(f[k]), sigmoid::<I>(o[k]));
            let new = tanh::<I>(g[k]);
            let state = forget * before[k] + input * new;
            (i[k], f[k], g[k], o[k]) = (input, forget, new, output);
            c[k] = state;
            h[k] = output * tanh::<I>(state);
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let gates = std::array::from_fn(|k| std::slice::from_raw_parts_mut(gates.add(k * n), n));
        let state = |p: *mut f32| std::slice::from_raw_parts_mut(p, n);
        each::<I>(gates, std::slice::from_raw_parts(before, n), state(c), state(h));
    }
}

multiversion! {
    /// `inputs` are the cell state before and after, and the gradient of the output in one part or two (else null).
    ///
    /// # Safety
    /// `n` elements at each pointer that is not null, four times as many at `gates` and `dgates`; the outputs do
    /// not overlap the rest.
    unsafe fn backward(
        n: usize, gates: *const f32, inputs: [*const f32; 4], dc: *mut f32, dgates: *mut f32,
    ) = backward_kernel;
}

#[inline(always)]
unsafe fn backward_kernel<I: Isa>(
    n: usize,
    gates: *const f32,
    [before, c, dh, outer]: [*const f32; 4],
    dc: *mut f32,
    dgates: *mut f32,
) {
    #[inline(always)]
    fn each<I: Isa>(
        [i, f, g, o]: [&[f32]; 4],
        before: &[f32],
        c: &[f32],
        dh: impl Fn(usize) -> f32,
        dc: &mut [f32],
        dgates: [&mut [f32]; 4],
    ) {
        let n = before.len();
        let ([i, f, g, o], c, dc) = ([&i[..n], &f[..n], &g[..n], &o[..n]], &c[..n], &mut dc[..n]);
        let [di, df, dg, d_o] = dgates.map(|gate| &mut gate[..n]);
        for k in 0..n {
            let (dh, seen) = (dh(k), tanh::<I>(c[k]));
            let cell = dc[k] + dh * (o[k] * (1.0 - seen * seen));
            di[k] = cell * (i[k] * (1.0 - i[k]) * g[k]);
            df[k] = cell * (f[k] * (1.0 - f[k]) * before[k]);
            dg[k] = cell * ((1.0 - g[k] * g[k]) * i[k]);
            d_o[k] = dh * (o[k] * (1.0 - o[k]) * seen);
            dc[k] = cell * f[k];
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let read = |p: *const f32| std::slice::from_raw_parts(p, n);
        let gates = std::array::from_fn(|k| read(gates.add(k * n)));
        let to = std::array::from_fn(|k| std::slice::from_raw_parts_mut(dgates.add(k * n), n));
        let dc = std::slice::from_raw_parts_mut(dc, n);
        let dh = read(dh);
        if outer.is_null() {
            each::<I>(gates, read(before), read(c), |k| dh[k], dc, to);
        } else {
            let outer = read(outer);
            each::<I>(gates, read(before), read(c), |k| dh[k] + outer[k], dc, to);
        }
    }
}
