//! The loop of an optimizer step over contiguous elements; the formulas are rows (`core/src/rows/update.rs`).

use crate::float::{Float, each_block};
use crate::multiversion;
use crate::simd::{Real, Simd, Vectors, prefetch, sweep, total};
use rushlight_core::backend::UpdateRule;
use rushlight_core::rows::{Lane, RuleVisitor, UpdateRow};
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Sub};

/// Elements of half types widened at once.
pub const BLOCK: usize = 1024;

/// Prefetch distance in elements. Roots and divisions keep the core from prefetching far enough: this makes Adam 25%
/// faster.
const AHEAD: usize = 512;

/// The scalars of an update, without its tensors.
#[derive(Clone, Copy)]
pub struct Factors {
    /// Scale of the gradient; negative to maximize.
    pub grad: f64,
    pub weight_decay: f64,
    pub shrink: f64,
    pub rule: UpdateRule,
}

/// Vector type for the rows of `core/src/rows/update.rs`.
#[derive(Clone, Copy)]
struct Lanes<V>(V);

macro_rules! operators {
    ($($trait:ident $method:ident)*) => {$(
        impl<V: Simd> $trait for Lanes<V> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, b: Self) -> Self {
                Lanes(self.0.$method(b.0))
            }
        }
    )*};
}
operators!(Add add Sub sub Mul mul Div div);

impl<V: Simd> Lane for Lanes<V> {
    #[inline(always)]
    fn fma(a: Self, b: Self, c: Self) -> Self {
        Lanes(a.0.fma(b.0, c.0))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Lanes(self.0.sqrt())
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        Lanes(self.0.max(b.0))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Lanes(self.0.max(V::splat(V::Elem::ZERO) - self.0))
    }
}

/// A row's loop over `n` elements.
struct Sweep<R: Real, I> {
    f: Factors,
    p: *mut R,
    g: *const R,
    state: [*mut R; 3],
    n: usize,
    level: PhantomData<I>,
}

impl<R: Real, I: Vectors> RuleVisitor for Sweep<R, I> {
    #[inline(always)]
    fn visit<O: UpdateRow, const STATES: u8>(self) {
        let Sweep { f, p, g, state, n, .. } = self;
        let lit = |v: f64| R::V::<I>::splat(R::lit(v));
        let (grad, weight_decay, shrink) = (lit(f.grad), lit(f.weight_decay), lit(f.shrink));
        // Without weight decay the parameter is not read: infinity times zero would be NaN.
        let decays = f.weight_decay != 0.0;
        let factors = f.rule.factors().map(|v| Lanes(lit(v)));
        sweep!(R::V<I>, n, i, m => {
            // SAFETY: `m` elements from `i` on are within `n`, by the caller's contract; states outside `STATES` are
            // not touched.
            unsafe {
                prefetch(p.wrapping_add(i + AHEAD));
                prefetch(g.wrapping_add(i + AHEAD));
                let mut param = R::V::<I>::get(p.add(i), m, R::ZERO) * shrink;
                let mut grad = R::V::<I>::get(g.add(i), m, R::ZERO) * grad;
                if decays {
                    grad = param.fma(weight_decay, grad);
                }
                let mut kept = [Lanes(lit(0.0)); 3];
                for k in 0..3 {
                    if STATES >> k & 1 == 1 {
                        prefetch(state[k].wrapping_add(i + AHEAD));
                        kept[k] = Lanes(R::V::<I>::get(state[k].add(i), m, R::ZERO));
                    }
                }
                let mut moved = Lanes(param);
                O::step::<_, STATES>(&mut moved, Lanes(grad), &mut kept, &factors);
                param = moved.0;
                param.put(p.add(i), m);
                for k in 0..3 {
                    if STATES >> k & 1 == 1 {
                        kept[k].0.put(state[k].add(i), m);
                    }
                }
            }
        });
    }
}

#[inline(always)]
unsafe fn update_kernel<R: Real, I: Vectors>(f: Factors, p: *mut R, g: *const R, state: [Option<*mut R>; 3], n: usize) {
    let present = state.iter().enumerate().fold(0, |bits, (k, s)| bits | u8::from(s.is_some()) << k);
    let state = state.map(|s| s.unwrap_or(std::ptr::null_mut()));
    // The states were checked, so the visitor runs.
    f.rule.visit(present, Sweep::<R, I> { f, p, g, state, n, level: PhantomData });
}

multiversion! {
    /// Applies an update to `n` neighbouring elements. Memory is the limit: AVX-512 gains nothing over AVX2.
    ///
    /// # Safety
    /// `n` elements at each pointer; the states the rule needs are there; outputs overlap no other memory.
    pub unsafe fn update<R: Real>(
        f: Factors, p: *mut R, g: *const R, state: [Option<*mut R>; 3], n: usize,
    ) = update_kernel, wide when false;
}

#[inline(always)]
unsafe fn scale_kernel<R: Real, I: Vectors>(factor: Option<f64>, x: *mut R, n: usize) -> bool {
    let zero = R::V::<I>::splat(R::ZERO);
    let by = R::V::<I>::splat(R::lit(factor.unwrap_or(1.0)));
    // Zero times a non-finite number is NaN, which stays in the sum.
    let mut seen = [zero; 4];
    // SAFETY: `n` elements by the caller's contract.
    unsafe {
        sweep!(R::V<I>, n, i, m, k => {
            let v = R::V::<I>::get(x.add(i), m, R::ZERO);
            seen[k] = v.fma(zero, seen[k]);
            if factor.is_some() {
                (v * by).put(x.add(i), m);
            }
        });
    }
    let seen = total(seen);
    seen == seen
}
multiversion! {
    unsafe fn wide_scale<R: Real>(factor: Option<f64>, x: *mut R, n: usize) -> bool = scale_kernel, wide when size_of::<R>() == 4;
}

/// Multiplies `n` adjacent elements by a factor, if there is one, and returns whether all were finite.
///
/// # Safety
/// `n` elements at `x`.
pub unsafe fn scale<T: Float>(factor: Option<f64>, x: *mut T, n: usize) -> bool {
    let to = if factor.is_some() { x } else { std::ptr::null_mut() };
    let mut finite = true;
    // SAFETY: by the caller's contract; elements that are not widened are multiplied where they are.
    unsafe { each_block(n, [x.cast_const()], to, |_, n, [x], _| finite &= wide_scale(factor, x.cast_mut(), n)) };
    finite
}
