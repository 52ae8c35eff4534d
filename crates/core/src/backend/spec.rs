//! Parts of engine calls: which op of a family, and sizes and options that several calls share.

use super::View;
use super::call::{self, Access};
use crate::rows::FACTORS;
pub use crate::rows::UpdateRule;
use crate::{Error, Philox};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Reductions to one value per kept position. `Sum`, `Prod` and `Mean` of half types accumulate in `f32`; of integers
/// in `i64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduce {
    /// Sum; 0 if empty.
    Sum,
    /// Sum over count.
    Mean,
    /// Product; 1 if empty.
    Prod,
    /// Largest; NaN wins. Not for empty reductions.
    Max,
    /// Smallest; NaN wins. Not for empty reductions.
    Min,
    /// Whether any is non-zero; output `bool`.
    Any,
    /// Whether all are non-zero; output `bool`.
    All,
    /// Variance with `count - correction` as divisor, by two passes or Welford's update. Floats only.
    Var {
        /// Subtracted from the count.
        correction: f64,
    },
    /// p-norm: `p` may be 0, 1, 2, any other number, infinity or its negative. Floats only.
    Norm {
        /// The order.
        p: f64,
    },
    /// `log(sum(exp(x)))` without overflow. Floats only.
    LogSumExp,
    /// Sum of squares. Floats only.
    SumSquares,
    /// Number of nonzero elements; output `i64`.
    CountNonzero,
}

/// Reductions that also return the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgReduce {
    /// Largest, first of equals; the first NaN wins.
    Max,
    /// Smallest, first of equals; the first NaN wins.
    Min,
}

/// The right operand of many products in an engine's own layout; see
/// [`pack_weight`](super::Backend::pack_weight). Only that engine reads it.
#[derive(Clone)]
pub struct Packed(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packed")
    }
}

/// Rank of the element that [`Kth`](call::Kth) finds; NaN is sorted to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The element at a sorted position.
    At(usize),
    /// The lower median; NaN, the first of them, if there is one.
    Median,
    /// The lower median of the elements that are not NaN; the first if all are.
    NanMedian,
}

/// Running reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Running sum.
    Sum,
    /// Running product.
    Prod,
    /// Running `log(sum(exp(x)))`.
    LogSumExp,
    /// Running maximum with the index of its last occurrence.
    Max,
    /// Running minimum with the index of its last occurrence.
    Min,
}

/// How a scatter combines a value with the element it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// Overwrites; the last of equal indices wins.
    Set,
    /// Adds.
    Add,
    /// Multiplies.
    Mul,
    /// Keeps the larger.
    Max,
    /// Keeps the smaller.
    Min,
}

/// The epilogue of a matrix product: applied before the result is rounded and stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// GELU by the error function.
    Gelu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// A matrix product of views.
pub type MatMul<'a> = call::MatMul<View<'a>>;

/// An N-dimensional convolution; spatial sizes are depth, height, width, unused leading ones being 1. Everything is
/// contiguous, channels before space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Independent groups of channels.
    pub groups: usize,
    /// Input sizes.
    pub input: [usize; 3],
    /// Kernel sizes.
    pub kernel: [usize; 3],
    /// Output sizes.
    pub output: [usize; 3],
    /// Steps.
    pub stride: [usize; 3],
    /// Zeros on each side.
    pub padding: [usize; 3],
    /// Steps within the kernel.
    pub dilation: [usize; 3],
}

/// A pooling window over planes of `[height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Independent planes (batch times channels).
    pub planes: usize,
    /// Input sizes.
    pub input: [usize; 2],
    /// Output sizes.
    pub output: [usize; 2],
    /// Which input positions an output position covers.
    pub window: Window,
}

/// The shape of pooling windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The same everywhere.
    Fixed {
        /// Window sizes.
        kernel: [usize; 2],
        /// Steps.
        stride: [usize; 2],
        /// Padding on each side, at most half the kernel.
        padding: [usize; 2],
        /// Steps within the window; 1 for averages.
        dilation: [usize; 2],
        /// Whether an average counts padding; not for maxima.
        count_include_pad: bool,
        /// Divisor of an average in place of the count.
        divisor_override: Option<usize>,
    },
    /// Adaptive: output `i` of `n` covers input from `floor(i * size / n)` to `ceil((i + 1) * size / n)`.
    Adaptive,
}

/// Normalisation of rows: `(x - mean) / sqrt(var + eps)`, or `x / sqrt(mean(x^2) + eps)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowNorm {
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// Added to the variance.
    pub eps: f64,
    /// RMS norm: the mean is not subtracted.
    pub rms: bool,
}

/// Normalisation of channels of `[batch, channels, space]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Positions per image and channel.
    pub space: usize,
    /// Added to the variance.
    pub eps: f64,
    /// `true`: statistics are computed from the batch and written. `false`: the given ones are read.
    pub training: bool,
}

/// Inputs of the cross-entropy of `[rows, classes]` logits, or of the negative log-likelihood of log-probabilities,
/// with class indices.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyInputs<V> {
    /// `[rows, classes]`, contiguous.
    pub logits: V,
    /// `[rows]`, `i64`, contiguous.
    pub target: V,
    /// `[classes]`, the logits' dtype.
    pub weight: Option<V>,
    /// The target of ignored rows.
    pub ignore_index: i64,
    /// Weight of the uniform distribution in the target.
    pub label_smoothing: f64,
    /// The rows are taken as log-probabilities: the logarithm of their sum of exponentials as zero. Without smoothing.
    pub log_probabilities: bool,
}

/// The same of views.
pub type CrossEntropy<'a> = CrossEntropyInputs<View<'a>>;

impl<V> CrossEntropyInputs<V> {
    pub(super) fn visit<'s>(&'s self, f: &mut dyn FnMut(Access, &'s V)) {
        [Some(&self.logits), Some(&self.target), self.weight.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|view| f(Access::Read, view));
    }

    pub(super) fn map<'s, W>(&'s self, f: &mut dyn FnMut(Access, &'s V) -> W) -> CrossEntropyInputs<W> {
        CrossEntropyInputs {
            logits: f(Access::Read, &self.logits),
            target: f(Access::Read, &self.target),
            weight: self.weight.as_ref().map(|view| f(Access::Read, view)),
            ignore_index: self.ignore_index,
            label_smoothing: self.label_smoothing,
            log_probabilities: self.log_probabilities,
        }
    }
}

/// Inputs of attention over `[batch, heads, length, head size]`; any strides. `k` and `v` may have fewer heads, each
/// serving `heads / kv_heads` neighbouring ones.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInputs<V> {
    /// Queries `[batch, heads, l, d]`.
    pub q: V,
    /// Keys `[batch, kv_heads, s, d]`.
    pub k: V,
    /// Values `[batch, kv_heads, s, dv]`.
    pub v: V,
    /// Expanded to `[batch, heads, l, s]`: `bool` (false is masked out) or the inputs' dtype, added to the scores.
    pub mask: Option<V>,
    /// Position `i` sees keys `0..=i`.
    pub causal: bool,
    /// Factor of the scores.
    pub scale: f64,
    /// Dropout of the probabilities: word `((b * heads + h) * l + i) * s + j` of the stream, kept where its uniform is
    /// `>= p`.
    pub dropout: Option<(f64, Philox)>,
}

/// The same of views.
pub type Attention<'a> = AttentionInputs<View<'a>>;

impl<V> AttentionInputs<V> {
    pub(super) fn visit<'s>(&'s self, f: &mut dyn FnMut(Access, &'s V)) {
        [Some(&self.q), Some(&self.k), Some(&self.v), self.mask.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|view| f(Access::Read, view));
    }

    pub(super) fn map<'s, W>(&'s self, f: &mut dyn FnMut(Access, &'s V) -> W) -> AttentionInputs<W> {
        AttentionInputs {
            q: f(Access::Read, &self.q),
            k: f(Access::Read, &self.k),
            v: f(Access::Read, &self.v),
            mask: self.mask.as_ref().map(|view| f(Access::Read, view)),
            causal: self.causal,
            scale: self.scale,
            dropout: self.dropout,
        }
    }
}

/// Dense factorisations; inputs and outputs in the order the comments give, each with leading batch dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linalg {
    /// `a [n, n]` to determinant `[]`.
    Det,
    /// `a [n, n]` to sign `[]` and logarithm of the determinant's magnitude `[]`.
    Slogdet,
    /// `a [n, n]` to its inverse.
    Inv,
    /// `a [n, n]`, `b [n, r]` to `x [n, r]` with `a x = b`.
    Solve,
    /// The same for a triangular `a`.
    SolveTriangular {
        /// Which triangle is read.
        upper: bool,
        /// Whether the diagonal is taken as ones.
        unitriangular: bool,
    },
    /// `a [n, n]` to its lower factor.
    Cholesky,
    /// `a [m, n]` to `q [m, k]`, `r [k, n]`; `k` is `min(m, n)`, or `m` if complete.
    Qr {
        /// Whether `q` is square.
        complete: bool,
    },
    /// `a [m, n]` to `u [m, k]`, `s [min(m, n)]`, `vh [k, n]`; square `u` and `vh` if full. To `s` alone if it is the
    /// only output.
    Svd {
        /// Whether `u` and `vh` are square.
        full_matrices: bool,
    },
    /// Symmetric `a [n, n]` (lower triangle read) to ascending values `[n]` and vectors `[n, n]`. To the values alone
    /// if they are the only output.
    Eigh,
    /// `a [m, n]` to its packed factors `[m, n]` (`U` above, `L` without its unit diagonal below), LAPACK's pivots
    /// `[min(m, n)]`, counted from one, and the place of the first zero pivot `[]`, zero if there is none; the numbers
    /// in the dtype of `a`.
    LuFactor,
    /// `a [m, n]` to the packed reflectors of its QR factorisation `[m, n]` (`R` above, the vectors without their ones
    /// below) and their factors `[min(m, n)]`.
    Geqrf,
    /// Symmetric `a [n, n]` (lower triangle read) to `L D Lᵀ` packed in the lower triangle `[n, n]`, LAPACK's pivots
    /// `[n]` and the place of the first zero block `[]`, zero if there is none; the numbers in the dtype of `a`.
    LdlFactor,
    /// `b [n, r]`, the factors and the pivots of [`Linalg::LdlFactor`] to `x [n, r]` with `a x = b`.
    LdlSolve,
    /// `a [m, n]`, `b [m, r]` to the least-squares `x [n, r]` of least norm.
    Lstsq,
    /// `a [n, n]`, complex, to its values `[n]` and right vectors `[n, n]`. To the values alone if they are the only
    /// output.
    Eig,
}

/// Ops on pairs of complex numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complex {
    /// `a b`.
    Mul,
    /// `a` times the conjugate of `b`.
    MulConj,
    /// `a / b`.
    Div,
    /// Rows of `a`, `[rows, n, 2]`, each with its product with `i` behind it: `[rows, 2, n, 2]`. A product of real
    /// matrices with them on the right is one of complex matrices. `b` is `a` again.
    Blocks,
    /// Products of matrices, `[batch, m, k, 2]` and `[batch, k, n, 2]`; engines without such products decline.
    Product,
}

/// Discrete Fourier transforms of the rows of a matrix. Complex rows have a last dimension of two. GPUs also transform
/// several dimensions at once: those between the batch and the parts of `[batch, d1, …, dn, 2]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fft {
    /// `[rows, n, 2]` to the same size; the exponent is positive for an inverse transform. The CPU also transforms the
    /// second dimension of `[rows, n, side, 2]`.
    Complex {
        /// Whether the exponent is positive.
        inverse: bool,
    },
    /// Real `[rows, n]` to the first half of the transform, `[rows, n / 2 + 1, 2]`.
    Real,
    /// The first half of a Hermitian signal, `[rows, n / 2 + 1, 2]`, to its inverse transform, real `[rows, n]`.
    Hermitian,
}

/// One parameter's share of an optimizer step: a part of [`Update`](call::Update). Parameter, gradient and state are
/// contiguous, of one shape and one floating dtype; half types are computed in `f32`.
///
/// With `g = ±grad_scale * grad`, minus to maximize: `param *= shrink`, `g += weight_decay * param`, then the rule.
#[derive(Clone, Copy, Debug)]
pub struct UpdateOf<V> {
    /// Changed.
    pub param: V,
    /// Read.
    pub grad: V,
    /// Changed in place; the rule determines which of them exist.
    pub state: [Option<V>; 3],
    /// Whether to maximize.
    pub maximize: bool,
    /// Part of the parameter added to its gradient.
    pub weight_decay: f64,
    /// Factor of the parameter itself: 1, or less with decoupled weight decay.
    pub shrink: f64,
    /// The rule applied afterwards.
    pub rule: UpdateRule,
}

/// The same of views.
pub type ParamUpdate<'a> = UpdateOf<View<'a>>;

impl<V> UpdateOf<V> {
    pub(super) fn visit<'s>(&'s self, f: &mut dyn FnMut(Access, &'s V)) {
        f(Access::Read, &self.grad);
        f(Access::Change, &self.param);
        self.state.iter().flatten().for_each(|view| f(Access::Change, view));
    }

    pub(super) fn map<'s, W>(&'s self, f: &mut dyn FnMut(Access, &'s V) -> W) -> UpdateOf<W> {
        UpdateOf {
            grad: f(Access::Read, &self.grad),
            param: f(Access::Change, &self.param),
            state: [0, 1, 2].map(|i| self.state[i].as_ref().map(|view| f(Access::Change, view))),
            maximize: self.maximize,
            weight_decay: self.weight_decay,
            shrink: self.shrink,
            rule: self.rule,
        }
    }
}

/// Number of [`numbers`](ParamUpdate::numbers) of an update.
pub const UPDATE_NUMBERS: usize = 3 + FACTORS;

impl ParamUpdate<'_> {
    /// The factors of this step, as engines keep them on the device: sign, weight decay, shrinking, the rule's own.
    pub fn numbers(&self) -> [f64; UPDATE_NUMBERS] {
        Self::numbers_of(self.maximize, self.weight_decay, self.shrink, self.rule)
    }

    /// [`numbers`](ParamUpdate::numbers) without the parameter's tensors.
    pub fn numbers_of(maximize: bool, weight_decay: f64, shrink: f64, rule: UpdateRule) -> [f64; UPDATE_NUMBERS] {
        let mut numbers = [0.0; UPDATE_NUMBERS];
        numbers[..3].copy_from_slice(&[if maximize { -1.0 } else { 1.0 }, weight_decay, shrink]);
        numbers[3..].copy_from_slice(&rule.factors());
        numbers
    }

    /// Bit mask of the states given.
    pub fn present(&self) -> u8 {
        self.state.iter().enumerate().fold(0, |bits, (i, state)| bits | u8::from(state.is_some()) << i)
    }

    /// The error of an update whose states do not match its rule.
    pub fn misfit(&self) -> Error {
        let states = self.rule.states().iter().map(|s| match s.present {
            Some(_) => format!("{} (optional)", s.name),
            None => s.name.to_string(),
        });
        let given: Vec<usize> = (0..3).filter(|&i| self.state[i].is_some()).collect();
        Error::value(format!(
            "update: {} keeps the states [{}], but the states {given:?} were given",
            self.rule.name(),
            states.collect::<Vec<_>>().join(", "),
        ))
    }
}
