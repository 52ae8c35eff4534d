//! The rules themselves, over neighbouring elements.

use crate::float::{Float, Scratch, load_row, store_row};
use crate::multiversion;
use crate::simd::{Real, Simd, Vectors, prefetch, sweep, total};
use rushlight_core::backend::UpdateRule;

/// Elements of half types widened at once.
pub const BLOCK: usize = 1024;

/// How many elements ahead memory is asked for. Roots and quotients keep the core from looking far enough ahead by itself: Adam is a
/// quarter faster so.
const AHEAD: usize = 512;

/// What an update does, besides to whom.
#[derive(Clone, Copy)]
pub struct Factors {
    /// Of the gradient; negative to maximize.
    pub grad: f64,
    pub weight_decay: f64,
    pub shrink: f64,
    pub rule: UpdateRule,
}

#[inline(always)]
unsafe fn update_kernel<R: Real, I: Vectors>(f: Factors, p: *mut R, g: *const R, state: [Option<*mut R>; 3], n: usize) {
    type Vector<R, I> = <R as Real>::V<I>;
    let lit = |v: f64| Vector::<R, I>::splat(R::lit(v));
    let (grad, weight_decay, shrink) = (lit(f.grad), lit(f.weight_decay), lit(f.shrink));
    // Without weight decay the parameter stays out of the gradient, even where it is infinite.
    let decays = f.weight_decay != 0.0;
    let zero = lit(0.0);

    /// A loop over vectors with the parameter, the scaled gradient and the states read before the body and written after it.
    macro_rules! each {
        (|$p:ident, $g:ident $(, $s:ident = $at:ident)*| $body:block) => {
            sweep!(Vector<R, I>, n, i, m => {
                // SAFETY: `m` elements from `i` on lie within `n`, by the caller's contract.
                unsafe {
                    prefetch(p.wrapping_add(i + AHEAD));
                    prefetch(g.wrapping_add(i + AHEAD));
                    $(prefetch($at.wrapping_add(i + AHEAD));)*
                    let mut $p = Vector::<R, I>::get(p.add(i), m, R::ZERO) * shrink;
                    let mut $g = Vector::<R, I>::get(g.add(i), m, R::ZERO) * grad;
                    if decays {
                        $g = $p.fma(weight_decay, $g);
                    }
                    $(let mut $s = Vector::<R, I>::get($at.add(i), m, R::ZERO);)*
                    $body
                    $p.put(p.add(i), m);
                    $($s.put($at.add(i), m);)*
                }
            })
        };
    }

    match (f.rule, state) {
        (UpdateRule::Sgd { grad_step, .. }, [None, ..]) => {
            let grad_step = lit(-grad_step);
            each!(|p, g| { p = g.fma(grad_step, p) });
        }
        (UpdateRule::Sgd { decay, gain, step, grad_step }, [Some(buffer), ..]) => {
            let (decay, gain, step, grad_step) = (lit(decay), lit(gain), lit(-step), lit(-grad_step));
            each!(|p, g, b = buffer| {
                b = g.fma(gain, b * decay);
                p = b.fma(step, g.fma(grad_step, p));
            });
        }
        (UpdateRule::Adam { beta1, beta2, eps, root, step, grad_step }, [Some(first), Some(second), largest]) => {
            let (gain1, beta2, gain2) = (lit(1.0 - beta1), lit(beta2), lit(1.0 - beta2));
            let (eps, root, step, grad_step) = (lit(eps), lit(root), lit(step), lit(grad_step));
            match largest {
                None => each!(|p, g, m = first, v = second| {
                    m = (g - m).fma(gain1, m);
                    v = (g * g).fma(gain2, v * beta2);
                    p = p - m.fma(step, g * grad_step) / v.sqrt().fma(root, eps);
                }),
                Some(largest) => each!(|p, g, m = first, v = second, u = largest| {
                    m = (g - m).fma(gain1, m);
                    v = (g * g).fma(gain2, v * beta2);
                    u = u.max(v);
                    p = p - m.fma(step, g * grad_step) / u.sqrt().fma(root, eps);
                }),
            }
        }
        (UpdateRule::Adamax { beta1, beta2, eps, step }, [Some(first), Some(second), _]) => {
            let (gain1, beta2, eps, step) = (lit(1.0 - beta1), lit(beta2), lit(eps), lit(step));
            each!(|p, g, m = first, u = second| {
                m = (g - m).fma(gain1, m);
                u = (u * beta2).max(g.max(zero - g) + eps);
                p = p - m * step / u;
            });
        }
        (UpdateRule::RmsProp { decay, gain, eps, momentum, step }, [Some(square), average, buffer]) => {
            let (decay, gain, eps) = (lit(decay), lit(gain), lit(eps));
            let (momentum, step) = (lit(momentum), lit(step));
            match (average, buffer) {
                (None, None) => each!(|p, g, v = square| {
                    v = (g * g).fma(gain, v * decay);
                    p = p - g * step / (v.sqrt() + eps);
                }),
                (None, Some(buffer)) => each!(|p, g, v = square, b = buffer| {
                    v = (g * g).fma(gain, v * decay);
                    b = b.fma(momentum, g / (v.sqrt() + eps));
                    p = p - b * step;
                }),
                (Some(average), None) => each!(|p, g, v = square, a = average| {
                    v = (g * g).fma(gain, v * decay);
                    a = (g - a).fma(gain, a);
                    p = p - g * step / ((zero - a).fma(a, v).sqrt() + eps);
                }),
                (Some(average), Some(buffer)) => each!(|p, g, v = square, a = average, b = buffer| {
                    v = (g * g).fma(gain, v * decay);
                    a = (g - a).fma(gain, a);
                    b = b.fma(momentum, g / ((zero - a).fma(a, v).sqrt() + eps));
                    p = p - b * step;
                }),
            }
        }
        (UpdateRule::Adadelta { rho, eps, step }, [Some(square), Some(delta), _]) => {
            let (rho, gain, eps, step) = (lit(rho), lit(1.0 - rho), lit(eps), lit(step));
            each!(|p, g, v = square, u = delta| {
                v = (g * g).fma(gain, v * rho);
                let d = (u + eps).sqrt() / (v + eps).sqrt() * g;
                u = (d * d).fma(gain, u * rho);
                p = p - d * step;
            });
        }
        // The states were checked.
        _ => {}
    }
}

multiversion! {
    /// Applies an update to `n` neighbouring elements. Memory is the limit: AVX-512 gains nothing over AVX2.
    ///
    /// # Safety
    /// `n` elements at each pointer; the states the rule needs are there; what is written overlaps nothing else.
    pub unsafe fn update<R: Real>(
        f: Factors, p: *mut R, g: *const R, state: [Option<*mut R>; 3], n: usize,
    ) = update_kernel, wide when false;
}

#[inline(always)]
unsafe fn scale_kernel<T: Float, I: Vectors>(factor: Option<f64>, x: *mut T, n: usize) -> bool {
    let zero = <T::Acc as Real>::V::<I>::splat(T::Acc::ZERO);
    let by = <T::Acc as Real>::V::<I>::splat(T::Acc::lit(factor.unwrap_or(1.0)));
    // Zero times anything that is not finite is NaN, which stays in the sum.
    let mut seen = [zero; 4];
    let mut scratch = Scratch::<T::Acc, BLOCK>::new();
    let mut at = 0;
    while at < n {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of at most `BLOCK` within `n`, by the caller's contract.
        unsafe {
            let wide = load_row::<T, I>(x.add(at), scratch.as_mut_ptr(), len).cast_mut();
            sweep!(<T::Acc as Real>::V<I>, len, i, m, k => {
                let v = <T::Acc as Real>::V::<I>::get(wide.add(i), m, T::Acc::ZERO);
                seen[k] = v.fma(zero, seen[k]);
                if factor.is_some() {
                    (v * by).put(wide.add(i), m);
                }
            });
            if factor.is_some() {
                store_row::<T, I>(wide, x.add(at), len);
            }
        }
        at += len;
    }
    let seen = total(seen);
    seen == seen
}
multiversion! {
    /// Multiplies `n` neighbouring elements by a factor, if there is one, and says whether all were finite.
    ///
    /// # Safety
    /// `n` elements at `x`.
    pub unsafe fn scale<T: Float>(factor: Option<f64>, x: *mut T, n: usize) -> bool = scale_kernel, wide when size_of::<T>() == 4;
}
