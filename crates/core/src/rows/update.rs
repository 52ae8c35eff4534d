//! Optimizer rules as rows: the formula of every fused optimizer step, written once for all engines.
//!
//! A row names the tensors a rule keeps for a parameter, its factors and its formula:
//!
//! ```text
//! Adamax [m, u] { beta1, beta2, eps, step } host { gain1 = 1.0 - beta1 } => {
//!     m = fma(gain1, g - m, m);
//!     u = max(beta2 * u, abs(g) + eps);
//!     p = p - step * m / u;
//! }
//! ```
//!
//! `p` is the parameter, `g` its gradient after sign, scale and weight decay. A state followed by `if NAME` is
//! optional; `choose(NAME, a, b)` is `a` where the state exists and `b` where it does not. `host` factors are computed
//! once a step in double precision. Each row has three interpretations: a function over any [`Lane`] (SIMD vectors of
//! the CPU engine, whole arrays in the default body of [`call::Update`](crate::backend::call::Update)) and, as text,
//! part of a GPU kernel.

use std::ops::{Add, Div, Mul, Sub};

/// Maximum factors of a rule.
pub const FACTORS: usize = 8;

/// Arithmetic that the formulas use.
pub trait Lane: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> {
    /// `a * b + c`, with a single rounding if the hardware has FMA.
    fn fma(a: Self, b: Self, c: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// The larger of two.
    fn max(self, b: Self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
}

// Free functions, so that a formula reads the same in Rust and in C.
#[inline(always)]
fn fma<L: Lane>(a: L, b: L, c: L) -> L {
    L::fma(a, b, c)
}
#[inline(always)]
fn sqrt<L: Lane>(x: L) -> L {
    L::sqrt(x)
}
#[inline(always)]
fn max<L: Lane>(a: L, b: L) -> L {
    L::max(a, b)
}
#[inline(always)]
fn abs<L: Lane>(x: L) -> L {
    L::abs(x)
}
#[inline(always)]
fn choose<L: Lane>(present: bool, a: L, b: L) -> L {
    if present { a } else { b }
}

/// A tensor that a rule keeps for each parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleState {
    /// Its name in the formula.
    pub name: &'static str,
    /// The name of the condition that it exists, if it is optional.
    pub present: Option<&'static str>,
}

/// A rule as a type. `STATES` is the bit mask of existing states.
pub trait UpdateRow: 'static {
    /// The states, in the order of [`ParamUpdate::state`](crate::backend::ParamUpdate::state).
    const STATES: &'static [RuleState];

    /// Moves a parameter and its states by one step.
    fn step<L: Lane, const STATES: u8>(param: &mut L, grad: L, state: &mut [L; 3], factors: &[L; FACTORS]);
}

/// Whether the bit mask `present` has all required states and no unknown one.
const fn fits(states: &[RuleState], present: u8) -> bool {
    let mut i = 0;
    while i < states.len() {
        if states[i].present.is_none() && present >> i & 1 == 0 {
            return false;
        }
        i += 1;
    }
    present >> states.len() == 0
}

/// A computation over the type behind an [`UpdateRule`] and its states.
pub trait RuleVisitor {
    /// Called with the rule's row and the states that exist.
    fn visit<O: UpdateRow, const STATES: u8>(self);
}

macro_rules! update_rules {
    (
        [$p:ident $g:ident]
        $(
            $(#[$doc:meta])*
            $Name:ident [$($state:ident $(if $present:ident)?),+] {
                $($(#[$field_doc:meta])* $field:ident,)+
            }
            $(host { $($derived:ident = $value:expr),+ $(,)? })?
            => { $($body:tt)* }
        )*
    ) => {
        /// How a parameter `p` follows its gradient `g`. The factors contain the learning rate and the corrections for
        /// the number of steps, so that five rules cover the usual optimizers.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum UpdateRule {
            $($(#[$doc])* $Name { $($(#[$field_doc])* $field: f64,)+ },)*
        }

        /// One type per rule, for engines that compile Rust.
        pub mod update_row {
            $($(#[$doc])* pub struct $Name;)*
        }

        impl UpdateRule {
            /// The rule's name in the table.
            pub const fn name(self) -> &'static str {
                match self { $(UpdateRule::$Name { .. } => stringify!($Name)),* }
            }

            /// A number for each rule: its place in the table.
            pub fn index(self) -> u16 {
                let names = [$(stringify!($Name)),*];
                names.iter().position(|name| *name == self.name()).unwrap_or_default() as u16
            }

            /// The rule with that [`index`](UpdateRule::index), all factors zero; the first if there is none.
            pub fn of_index(index: u16) -> UpdateRule {
                let all = [$(UpdateRule::$Name { $($field: 0.0),+ }),*];
                *all.get(usize::from(index)).unwrap_or(&all[0])
            }

            /// The factors: the fields in order, then those computed on the host, padded with zeros.
            pub fn factors(self) -> [f64; FACTORS] {
                let mut factors = [0.0; FACTORS];
                match self {
                    $(UpdateRule::$Name { $($field),+ } => {
                        let own = [$($field,)+ $($($value,)+)?];
                        factors[..own.len()].copy_from_slice(&own);
                    })*
                }
                factors
            }

            /// The factors' names, in the order of [`factors`](UpdateRule::factors).
            pub const fn factor_names(self) -> &'static [&'static str] {
                match self {
                    $(UpdateRule::$Name { .. } => &[$(stringify!($field),)+ $($(stringify!($derived),)+)?],)*
                }
            }

            /// The states the rule keeps.
            pub const fn states(self) -> &'static [RuleState] {
                match self { $(UpdateRule::$Name { .. } => <update_row::$Name as UpdateRow>::STATES),* }
            }

            /// Whether the rule supports these states, a bit mask.
            pub const fn fits(self, present: u8) -> bool {
                fits(self.states(), present)
            }

            /// The formula as text, for engines that compile C: assignments to `p` and the states, and `let`.
            pub const fn text(self) -> &'static str {
                match self { $(UpdateRule::$Name { .. } => stringify!($($body)*)),* }
            }

            /// Calls the visitor with the rule's type; false if the states do not [fit](UpdateRule::fits).
            #[inline(always)]
            pub fn visit(self, present: u8, visitor: impl RuleVisitor) -> bool {
                match self {
                    $(UpdateRule::$Name { .. } => visit::<update_row::$Name>(present, visitor)),*
                }
            }
        }

        $(
            impl UpdateRow for update_row::$Name {
                const STATES: &'static [RuleState] = &[
                    $(RuleState { name: stringify!($state), present: update_rules!(@present $($present)?) }),+
                ];

                #[inline(always)]
                #[allow(unused_variables, unused_assignments, unused_mut, non_snake_case)]
                fn step<L: Lane, const STATES: u8>(
                    param: &mut L,
                    $g: L,
                    state: &mut [L; 3],
                    factors: &[L; FACTORS],
                ) {
                    let [$($field,)+ $($($derived,)+)? ..] = *factors;
                    let [$(mut $state,)+ ..] = *state;
                    let mut $p = *param;
                    let mut bit = 0;
                    $(
                        $(let $present = STATES >> bit & 1 == 1;)?
                        bit += 1;
                    )+
                    $($body)*
                    *param = $p;
                    state.iter_mut().zip([$($state),+]).for_each(|(slot, value)| *slot = value);
                }
            }
        )*
    };
    (@present) => { None };
    (@present $present:ident) => { Some(stringify!($present)) };
}

#[inline(always)]
fn visit<O: UpdateRow>(present: u8, visitor: impl RuleVisitor) -> bool {
    macro_rules! masks {
        ($($mask:literal)*) => {
            match present {
                // The condition is a constant: rustc instantiates only the masks that fit.
                $($mask if const { fits(O::STATES, $mask) } => {
                    if const { fits(O::STATES, $mask) } {
                        visitor.visit::<O, $mask>();
                    }
                    true
                })*
                _ => false,
            }
        };
    }
    masks!(0 1 2 3 4 5 6 7)
}

update_rules! {
    [p g]

    /// SGD; state `[buffer if it has momentum]`.
    Sgd [buffer if MOMENTUM] {
        /// Decay factor of the buffer; 0 in its first step.
        decay,
        /// Weight of the gradient in the buffer.
        gain,
        /// Weight of the buffer in the parameter.
        step,
        /// Weight of the gradient in the parameter.
        grad_step,
    } host { minus_step = -step, minus_grad_step = -grad_step } => {
        buffer = fma(gain, g, decay * buffer);
        p = fma(minus_grad_step, g, p);
        p = choose(MOMENTUM, fma(minus_step, buffer, p), p);
    }

    /// Adam, AdamW, NAdam, RAdam; state `[m, v, largest v if amsgrad]`.
    Adam [m, v, largest if AMSGRAD] {
        /// Decay factor of `m`.
        beta1,
        /// Decay factor of `v`.
        beta2,
        /// Added to the divisor.
        eps,
        /// Factor of the square root.
        root,
        /// Of `m`.
        step,
        /// Weight of the gradient itself.
        grad_step,
    } host { gain1 = 1.0 - beta1, gain2 = 1.0 - beta2 } => {
        m = fma(gain1, g - m, m);
        v = fma(gain2, g * g, beta2 * v);
        largest = max(largest, v);
        p = p - fma(step, m, grad_step * g) / fma(root, sqrt(choose(AMSGRAD, largest, v)), eps);
    }

    /// Adamax; state `[m, u]`.
    Adamax [m, u] {
        /// Decay factor of `m`.
        beta1,
        /// Decay factor of `u`.
        beta2,
        /// Added to the gradient's magnitude.
        eps,
        /// Factor of the quotient.
        step,
    } host { gain1 = 1.0 - beta1 } => {
        m = fma(gain1, g - m, m);
        u = max(beta2 * u, abs(g) + eps);
        p = p - step * m / u;
    }

    /// RMSprop and Adagrad; state `[v, average if centered, buffer if it has momentum]`.
    RmsProp [v, average if CENTERED, buffer if MOMENTUM] {
        /// Decay factor of `v`.
        decay,
        /// Weight of the squared gradient.
        gain,
        /// Added to the divisor.
        eps,
        /// Decay factor of the buffer.
        momentum,
        /// Factor of the quotient or the buffer.
        step,
    } => {
        v = fma(gain, g * g, decay * v);
        average = fma(gain, g - average, average);
        let variance = choose(CENTERED, v - average * average, v);
        let quotient = g / (sqrt(variance) + eps);
        buffer = fma(momentum, buffer, quotient);
        p = p - step * choose(MOMENTUM, buffer, quotient);
    }

    /// Adadelta; state `[v, u]`.
    Adadelta [v, u] {
        /// Decay factor of the averages.
        rho,
        /// Added under the roots.
        eps,
        /// Factor of the difference.
        step,
    } host { gain = 1.0 - rho } => {
        v = fma(gain, g * g, rho * v);
        let d = sqrt(u + eps) / sqrt(v + eps) * g;
        u = fma(gain, d * d, rho * u);
        p = p - step * d;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_factors_follow_from_the_table() {
        let adam = UpdateRule::Adam { beta1: 0.75, beta2: 0.5, eps: 0.1, root: 2.0, step: 3.0, grad_step: 4.0 };
        assert_eq!(adam.factors(), [0.75, 0.5, 0.1, 2.0, 3.0, 4.0, 0.25, 0.5]);
        assert_eq!(adam.factor_names()[6..], ["gain1", "gain2"]);
        assert_eq!(adam.states()[2], RuleState { name: "largest", present: Some("AMSGRAD") });
        let fitting = |rule: UpdateRule| (0..8).filter(|&mask| rule.fits(mask)).collect::<Vec<_>>();
        assert_eq!(fitting(adam), [3, 7]);
        assert_eq!(fitting(UpdateRule::of_index(0)), [0, 1]);
        assert_eq!(fitting(UpdateRule::of_index(2)), [3]);
        assert_eq!(fitting(UpdateRule::of_index(3)), [1, 3, 5, 7]);
        assert!((0..5).all(|index| UpdateRule::of_index(index).index() == index));
    }
}
