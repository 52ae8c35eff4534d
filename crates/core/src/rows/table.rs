//! The table of pointwise ops: class, code, name, inputs, parameters, value, derivatives.
//!
//! Derivatives avoid forms that make NaN in a branch `select` throws away: they are differentiated again.

// Constants are written out: the expressions are compiled as C too.
#![allow(clippy::approx_constant)]

use super::functions::*;
use super::{Bits, In, Num, Params, Real, rows};

const INFINITY: f64 = f64::INFINITY;

rows! {
    [dy y lit ZERO ONE]

    // ---- arithmetic
    /// Sum.
    num Add add(a, b) { a + b } => { { dy } { dy } }
    /// Difference.
    num Sub sub(a, b) { a - b } => { { dy } { -dy } }
    /// Product.
    num Mul mul(a, b) { a * b } => { { dy * b } { dy * a } }
    /// Quotient.
    real Div div(a, b) { a / b } => { { dy / b } { -dy * (a / b / b) } }
    /// Quotient rounded down.
    num FloorDivide floor_divide(a, b) { floor_div(a, b) } => { { ZERO } { ZERO } }
    /// Quotient rounded towards zero.
    num TruncDivide trunc_divide(a, b) { trunc_div(a, b) } => { { ZERO } { ZERO } }
    /// Remainder with the divisor's sign.
    num Remainder remainder(a, b) { remainder(a, b) } => { { dy } { -dy * floor_div(a, b) } }
    /// Remainder with the dividend's sign.
    num Fmod fmod(a, b) { fmod(a, b) } => { { dy } { -dy * trunc_div(a, b) } }
    /// Power.
    num Pow pow(a, b) { pow(a, b) } => {
        { select(eq(b, ZERO), ZERO, dy * b * pow(a, b - ONE)) }
        { let base = select(eq(a, ZERO), ONE, a); dy * select(eq(a, ZERO), select(lt(b, ZERO), -lit(INFINITY), ZERO), y * log(base)) }
    }
    /// The larger, NaN if either is; a tie shares the gradient.
    num Maximum maximum(a, b) { max(a, b) } => {
        { select(eq(a, b), dy * lit(0.5), select(lt(a, b), ZERO, dy)) }
        { select(eq(a, b), dy * lit(0.5), select(lt(b, a), ZERO, dy)) }
    }
    /// The smaller, NaN if either is; a tie shares the gradient.
    num Minimum minimum(a, b) { min(a, b) } => {
        { select(eq(a, b), dy * lit(0.5), select(lt(b, a), ZERO, dy)) }
        { select(eq(a, b), dy * lit(0.5), select(lt(a, b), ZERO, dy)) }
    }
    /// The larger, ignoring NaN; a tie shares the gradient.
    num Fmax fmax(a, b) { select(ne(b, b), a, select(ne(a, a), b, max(a, b))) } => {
        { select(ne(b, b), dy, select(eq(a, b), dy * lit(0.5), select(gt(a, b), dy, ZERO))) }
        { select(ne(b, b), ZERO, select(eq(a, b), dy * lit(0.5), select(gt(a, b), ZERO, dy))) }
    }
    /// The smaller, ignoring NaN; a tie shares the gradient.
    num Fmin fmin(a, b) { select(ne(b, b), a, select(ne(a, a), b, min(a, b))) } => {
        { select(ne(b, b), dy, select(eq(a, b), dy * lit(0.5), select(lt(a, b), dy, ZERO))) }
        { select(ne(b, b), ZERO, select(eq(a, b), dy * lit(0.5), select(lt(a, b), ZERO, dy))) }
    }
    /// Angle of the point `(b, a)`.
    real Atan2 atan2(a, b) { atan2(a, b) } => {
        { let d = a * a + b * b; select(eq(d, ZERO), ZERO, dy * b / select(eq(d, ZERO), ONE, d)) }
        { let d = a * a + b * b; select(eq(d, ZERO), ZERO, -dy * a / select(eq(d, ZERO), ONE, d)) }
    }
    /// Length of the vector `(a, b)`.
    real Hypot hypot(a, b) {
        let m = max(abs(a), abs(b)); let n = min(abs(a), abs(b)); let d = select(eq(m, ZERO), ONE, m); let r = select(eq(n, m), select(eq(m, ZERO), ZERO, ONE), n / d);
        select(eq(abs(a), lit(INFINITY)), abs(a), select(eq(abs(b), lit(INFINITY)), abs(b), m * sqrt(ONE + r * r)))
    } => { { dy * (a / y) } { dy * (b / y) } }
    /// `a` with the sign of `b`.
    real Copysign copysign(a, b) { copysign(a, b) } => { { select(eq(a, ZERO), ZERO, dy * copysign(ONE, a) * copysign(ONE, b)) } { ZERO } }
    /// The next number after `a` towards `b`. `step` is that of the bits, also where they are an f32's that stands for
    /// a half. Up to the magnitude `bound` numbers are `least` apart; those beyond `limit` count as `limit`.
    real Nextafter nextafter(a, b; step, least, bound, limit) {
        let m = min(abs(a), limit);
        let away = select(eq(a, ZERO), ONE, select(gt(b, a), copysign(ONE, a), -copysign(ONE, a)));
        let moved = select(le(m, bound), m + away * least, step_bits(m, away * step));
        select(ne(a, a), a, select(ne(b, b), b, select(eq(a, b), b, copysign(moved, select(eq(a, ZERO), b, a)))))
    } => { { select(eq(a, b), ZERO, dy) } { ZERO } }
    /// `log(exp(a) + exp(b))`.
    real Logaddexp logaddexp(a, b) { let d = select(eq(a, b), ZERO, abs(a - b)); max(a, b) + log1p(exp(-d)) } => {
        { dy * sigmoid(a - b) } { dy * sigmoid(b - a) }
    }
    /// `log2(2^a + 2^b)`.
    real Logaddexp2 logaddexp2(a, b) { let d = select(eq(a, b), ZERO, abs(a - b)); max(a, b) + log2(ONE + exp2(-d)) } => {
        { dy * sigmoid((a - b) * lit(0.6931471805599453)) } { dy * sigmoid((b - a) * lit(0.6931471805599453)) }
    }
    /// `a * log(b)`, zero where `a` is zero.
    real Xlogy xlogy(a, b) { select(ne(b, b), b, select(eq(a, ZERO), ZERO, a * log(b))) } => {
        { let safe = select(le(b, ZERO), select(eq(a, ZERO), ONE, b), b); dy * log(safe) }
        { dy * a / b }
    }
    /// Zero below zero, one above, `b` at zero.
    num Heaviside heaviside(a, b) { select(eq(a, ZERO), b, select(gt(a, ZERO), ONE, ZERO)) }

    // ---- comparison and bits
    /// Equal.
    compare Eq eq(a, b) { eq(a, b) }
    /// Not equal.
    compare Ne ne(a, b) { ne(a, b) }
    /// Less.
    compare Lt lt(a, b) { lt(a, b) }
    /// Less or equal.
    compare Le le(a, b) { le(a, b) }
    /// Greater.
    compare Gt gt(a, b) { gt(a, b) }
    /// Greater or equal.
    compare Ge ge(a, b) { ge(a, b) }
    /// Both are non-zero.
    compare LogicalAnd logical_and(a, b) { ne(select(eq(a, ZERO), a, b), ZERO) }
    /// Either is non-zero.
    compare LogicalOr logical_or(a, b) { ne(select(eq(a, ZERO), b, a), ZERO) }
    /// One of the two is non-zero.
    compare LogicalXor logical_xor(a, b) { ne(select(eq(a, ZERO), ZERO, ONE), select(eq(b, ZERO), ZERO, ONE)) }
    /// Not a number.
    test Isnan isnan(x) { ne(x, x) }
    /// Infinite.
    test Isinf isinf(x) { eq(abs(x), lit(INFINITY)) }
    /// Neither infinite nor NaN.
    test Isfinite isfinite(x) { lt(abs(x), lit(INFINITY)) }
    /// Whether the sign bit is set.
    test Signbit signbit(x) { lt(copysign(ONE, x), ZERO) }
    /// And.
    bits BitwiseAnd bitwise_and(a, b) { a.and(b) }
    /// Or.
    bits BitwiseOr bitwise_or(a, b) { a.or(b) }
    /// Exclusive or.
    bits BitwiseXor bitwise_xor(a, b) { a.xor(b) }
    /// Shift left.
    bits BitwiseLeftShift bitwise_left_shift(a, b) { a.shl(b) }
    /// Shift right.
    bits BitwiseRightShift bitwise_right_shift(a, b) { a.shr(b) }

    // ---- three inputs
    /// Kept between two bounds; a tie shares the gradient.
    num Clamp clamp(x, lo, hi) { min(max(x, lo), hi) } => {
        { let share = select(eq(select(eq(x, lo), ONE, ZERO), select(eq(x, hi), ONE, ZERO)), ONE, lit(0.5)); select(lt(x, lo), ZERO, select(gt(x, hi), ZERO, dy * share)) }
        { select(both(lt(x, lo), le(lo, hi)), dy, select(both(eq(x, lo), lt(lo, hi)), dy * lit(0.5), ZERO)) }
        { select(lt(hi, lo), dy, select(gt(x, hi), dy, select(both(eq(x, hi), lt(lo, hi)), dy * lit(0.5), ZERO))) }
    }
    /// Not below a bound; a tie shares the gradient, and NaN passes it to both.
    num ClampMin clamp_min(x, lo) { max(x, lo) } => {
        { select(eq(x, lo), dy * lit(0.5), select(lt(x, lo), ZERO, dy)) } { select(eq(x, lo), dy * lit(0.5), select(gt(x, lo), ZERO, dy)) }
    }
    /// Not above a bound; a tie shares the gradient, and NaN passes it to both.
    num ClampMax clamp_max(x, hi) { min(x, hi) } => {
        { select(eq(x, hi), dy * lit(0.5), select(gt(x, hi), ZERO, dy)) } { select(eq(x, hi), dy * lit(0.5), select(lt(x, hi), ZERO, dy)) }
    }
    /// Kept between two numbers, at which the gradient is zero.
    num ClampBetween clamp(x; lo, hi) { min(max(x, lo), hi) } => { { select(both(gt(x, lo), lt(x, hi)), dy, ZERO) } }
    /// From `a` to `b` by `w`.
    real Lerp lerp(a, b, w) { select(lt(abs(w), lit(0.5)), a + w * (b - a), b - (b - a) * (ONE - w)) } => {
        { dy * (ONE - w) } { dy * w } { dy * (b - a) }
    }
    /// `a + value * b * c`.
    num Addcmul addcmul(a, b, c; value) { a + value * b * c } => { { dy } { dy * c * value } { dy * b * value } }
    /// `a + value * b / c`.
    real Addcdiv addcdiv(a, b, c; value) { a + value * (b / c) } => { { dy } { dy * value / c } { -dy * value * b / (c * c) } }

    // ---- sign and rounding
    /// Negation.
    num Neg neg(x) { -x } => { { -dy } }
    /// Magnitude.
    num Abs abs(x) { abs(x) } => { { dy * sign(x) } }
    /// -1, 0 or 1.
    num Sign sign(x) { sign(x) } => { { ZERO } }
    /// Largest integer not above.
    real Floor floor(x) { floor(x) } => { { ZERO } }
    /// Smallest integer not below.
    real Ceil ceil(x) { ceil(x) } => { { ZERO } }
    /// Nearest integer, ties to even.
    real Round round(x) { round(x) } => { { ZERO } }
    /// Nearest multiple of `1 / scale`.
    real RoundDecimals round_decimals(x; scale) { round(x * scale) / scale } => { { ZERO } }
    /// Integer part.
    real Trunc trunc(x) { trunc(x) } => { { ZERO } }
    /// Fractional part.
    real Frac frac(x) { x - trunc(x) } => { { dy } }
    /// Non-finite values replaced.
    real NanToNum nan_to_num(x; nan, posinf, neginf) {
        select(ne(x, x), nan, select(eq(x, lit(INFINITY)), posinf, select(eq(x, -lit(INFINITY)), neginf, x)))
    } => { { select(lt(abs(x), lit(INFINITY)), dy, ZERO) } }

    // ---- powers, exponentials, logarithms
    /// `x * x`.
    num Square square(x) { x * x } => { { dy * (x + x) } }
    /// `1 / x`.
    real Reciprocal reciprocal(x) { ONE / x } => { { -dy * y * y } }
    /// Square root.
    real Sqrt sqrt(x) { sqrt(x) } => { { dy / (y + y) } }
    /// `1 / sqrt(x)`.
    real Rsqrt rsqrt(x) { ONE / sqrt(x) } => { { lit(-0.5) * dy * y * y * y } }
    /// e to the power.
    real Exp exp(x) { exp(x) } => { { dy * y } }
    /// Two to the power.
    real Exp2 exp2(x) { exp2(x) } => { { dy * y * lit(0.6931471805599453) } }
    /// `exp(x) - 1`.
    real Expm1 expm1(x) { expm1(x) } => { { dy * (y + ONE) } }
    /// Natural logarithm.
    real Log log(x) { log(x) } => { { dy / x } }
    /// Binary logarithm.
    real Log2 log2(x) { log2(x) } => { { dy / (x * lit(0.6931471805599453)) } }
    /// Decimal logarithm.
    real Log10 log10(x) { log10(x) } => { { dy / (x * lit(2.302585092994046)) } }
    /// `log(1 + x)`.
    real Log1p log1p(x) { log1p(x) } => { { dy / (x + ONE) } }

    // ---- trigonometric and hyperbolic
    /// Sine.
    real Sin sin(x) { sin(x) } => { { dy * cos(x) } }
    /// Cosine.
    real Cos cos(x) { cos(x) } => { { -dy * sin(x) } }
    /// Tangent.
    real Tan tan(x) { tan(x) } => { { dy * (ONE + y * y) } }
    /// Inverse sine.
    real Asin asin(x) { asin(x) } => { { dy / sqrt(ONE - x * x) } }
    /// Inverse cosine.
    real Acos acos(x) { acos(x) } => { { -dy / sqrt(ONE - x * x) } }
    /// Inverse tangent.
    real Atan atan(x) { atan(x) } => { { dy / (ONE + x * x) } }
    /// Hyperbolic sine.
    real Sinh sinh(x) { sinh(x) } => { { dy * cosh(x) } }
    /// Hyperbolic cosine.
    real Cosh cosh(x) { cosh(x) } => { { dy * sinh(x) } }
    /// Hyperbolic tangent.
    real Tanh tanh(x) { tanh(x) } => { { dy * (ONE - y * y) } }
    /// Inverse hyperbolic sine.
    real Asinh asinh(x) { asinh(x) } => { { dy / sqrt(x * x + ONE) } }
    /// Inverse hyperbolic cosine.
    real Acosh acosh(x) { acosh(x) } => { { dy / sqrt((x - ONE) * (x + ONE)) } }
    /// Inverse hyperbolic tangent.
    real Atanh atanh(x) { atanh(x) } => { { dy / (ONE - x * x) } }
    /// `sin(pi x) / (pi x)`.
    real Sinc sinc(x) {
        let t = x * lit(3.141592653589793); let d = select(eq(t, ZERO), ONE, t); select(eq(t, ZERO), ONE, sin(t) / d)
    } => { { let d = select(eq(x, ZERO), ONE, x); select(eq(x, ZERO), ZERO, dy * (cos(x * lit(3.141592653589793)) - y) / d) } }

    // ---- special functions
    /// Error function.
    real Erf erf(x) { erf(x) } => { { dy * lit(1.1283791670955126) * exp(-(x * x)) } }
    /// `1 - erf(x)`.
    real Erfc erfc(x) { erfc(x) } => { { -dy * lit(1.1283791670955126) * exp(-(x * x)) } }
    /// Inverse error function.
    real Erfinv erfinv(x) { erfinv(x) } => { { dy * lit(0.886226925452758) * exp(y * y) } }
    /// Logarithm of the gamma function's magnitude.
    real Lgamma lgamma(x) { lgamma(x) } => { { dy * digamma(x) } }
    /// Derivative of `lgamma`.
    real Digamma digamma(x) { digamma(x) } => { { dy * polygamma(ONE, x) } }
    /// Derivative of `digamma` of order `n`.
    real Polygamma polygamma(x; n) { polygamma(n, x) } => { { dy * polygamma(n + ONE, x) } }
    /// `log(x / (1 - x))`, with `x` kept `eps` away from 0 and 1 unless `eps` is negative. (The derivative outside is
    /// the logarithm of a negative number: NaN.)
    real Logit logit(x; eps) { let z = select(lt(eps, ZERO), x, min(max(x, eps), ONE - eps)); log(z / (ONE - z)) } => {
        { let out = select(lt(eps, ZERO), ZERO, select(both(ge(x, eps), le(x, ONE - eps)), ZERO, ONE)); let z = select(eq(out, ZERO), x, lit(0.5)); let p = z * (ONE - z); select(eq(out, ZERO), select(lt(p, ZERO), log(p), dy / p), ZERO) }
    }

    // ---- activations
    /// Logistic function.
    real Sigmoid sigmoid(x) { sigmoid(x) } => { { dy * y * (ONE - y) } }
    /// `log(sigmoid(x))`.
    real Logsigmoid logsigmoid(x) { min(x, ZERO) - log1p(exp(-abs(x))) } => { { dy * sigmoid(-x) } }
    /// The positive part.
    num Relu relu(x) { select(lt(x, ZERO), ZERO, x) } => { { select(gt(y, ZERO), dy, ZERO) } }
    /// The Gaussian error linear unit.
    real Gelu gelu(x) { x * normal_cdf(x) } => {
        { dy * (normal_cdf(x) + x * lit(0.3989422804014327) * exp(x * x * lit(-0.5))) }
    }
    /// The same by its tanh approximation.
    real GeluTanh gelu_tanh(x) {
        let t = tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x)); lit(0.5) * x * (ONE + t)
    } => { {
        let t = tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x));
        let slope = lit(0.7978845608028654) * (ONE + lit(0.134145) * x * x);
        dy * lit(0.5) * (ONE + t + x * (ONE - t * t) * slope)
    } }
    /// `x * sigmoid(x)`.
    real Silu silu(x) { x * sigmoid(x) } => { { let s = sigmoid(x); dy * s * (ONE + x * (ONE - s)) } }
    /// `x * tanh(softplus(x))`.
    real Mish mish(x) { x * tanh(max(x, ZERO) + log1p(exp(-abs(x)))) } => { {
        let t = tanh(max(x, ZERO) + log1p(exp(-abs(x)))); dy * (t + x * sigmoid(x) * (ONE - t * t))
    } }
    /// `log(1 + exp(beta x)) / beta`, linear above the threshold.
    real Softplus softplus(x; beta, threshold) {
        let z = x * beta; select(gt(z, threshold), x, (max(z, ZERO) + log1p(exp(-abs(z)))) / beta)
    } => { { select(gt(x * beta, threshold), dy, dy * sigmoid(x * beta)) } }
    /// `x / (1 + |x|)`.
    real Softsign softsign(x) { x / (ONE + abs(x)) } => { { let d = ONE + abs(x); dy / (d * d) } }
    /// `x`, or `alpha (exp(x) - 1)` below zero.
    real Elu elu(x; alpha) { select(gt(x, ZERO), x, alpha * expm1(min(x, ZERO))) } => {
        { select(gt(x, ZERO), dy, dy * alpha * exp(min(x, ZERO))) }
    }
    /// The self-normalising `elu`.
    real Selu selu(x) { lit(1.0507009873554805) * select(gt(x, ZERO), x, lit(1.6732632423543772) * expm1(min(x, ZERO))) } => {
        { dy * lit(1.0507009873554805) * select(gt(x, ZERO), ONE, lit(1.6732632423543772) * exp(min(x, ZERO))) }
    }
    /// The continuously differentiable `elu`.
    real Celu celu(x; alpha) { select(gt(x, ZERO), x, alpha * expm1(min(x / alpha, ZERO))) } => {
        { select(gt(x, ZERO), dy, dy * exp(min(x / alpha, ZERO))) }
    }
    /// `x`, or `slope x` below zero.
    real LeakyRelu leaky_relu(x; slope) { select(gt(x, ZERO), x, x * slope) } => { { select(gt(x, ZERO), dy, dy * slope) } }
    /// `a`, or `a b` below zero.
    real Prelu prelu(a, b) { select(gt(a, ZERO), a, a * b) } => { { select(gt(a, ZERO), dy, dy * b) } { select(gt(a, ZERO), ZERO, dy * a) } }
    /// `x relu6(x + 3) / 6`.
    real Hardswish hardswish(x) { x * min(max(x + lit(3.0), ZERO), lit(6.0)) / lit(6.0) } => {
        { select(le(x, lit(-3.0)), ZERO, select(lt(x, lit(3.0)), dy * (x / lit(3.0) + lit(0.5)), dy)) }
    }
    /// `relu6(x + 3) / 6`.
    real Hardsigmoid hardsigmoid(x) { min(max(x + lit(3.0), ZERO), lit(6.0)) / lit(6.0) } => {
        { select(both(gt(x, lit(-3.0)), lt(x, lit(3.0))), dy / lit(6.0), ZERO) }
    }
    /// Kept between two constants.
    num Hardtanh hardtanh(x; lo, hi) { min(max(x, lo), hi) } => { { select(both(gt(x, lo), lt(x, hi)), dy, ZERO) } }
    /// Zero within `lambda` of zero.
    real Hardshrink hardshrink(x; lambda) { select(both(ge(x, -lambda), le(x, lambda)), ZERO, x) } => {
        { select(both(ge(x, -lambda), le(x, lambda)), ZERO, dy) }
    }
    /// Moved `lambda` towards zero.
    real Softshrink softshrink(x; lambda) { select(gt(x, lambda), x - lambda, select(lt(x, -lambda), x + lambda, x * ZERO)) } => {
        { select(both(ge(x, -lambda), le(x, lambda)), ZERO, dy) }
    }
    /// `x - tanh(x)`.
    real Tanhshrink tanhshrink(x) { x - tanh(x) } => { { let t = tanh(x); dy * t * t } }
    /// `x` above the bound, else `value`.
    num Threshold threshold(x; bound, value) { select(le(x, bound), value, x) } => { { select(le(x, bound), ZERO, dy) } }

    // ---- losses, element by element: a is the prediction, b the target
    /// `(a - b)^2`.
    real MseLoss mse_loss(a, b) { (a - b) * (a - b) } => { { lit(2.0) * dy * (a - b) } { lit(2.0) * dy * (b - a) } }
    /// `|a - b|`.
    real L1Loss l1_loss(a, b) { abs(a - b) } => { { dy * sign(a - b) } { dy * sign(b - a) } }
    /// Squared near zero, linear beyond `beta`.
    real SmoothL1Loss smooth_l1_loss(a, b; beta) {
        let d = abs(a - b); select(lt(d, beta), lit(0.5) * d * d / beta, d - lit(0.5) * beta)
    } => {
        { let d = a - b; select(lt(abs(d), beta), dy * d / select(eq(beta, ZERO), ONE, beta), dy * sign(d)) }
        { let d = b - a; select(lt(abs(d), beta), dy * d / select(eq(beta, ZERO), ONE, beta), dy * sign(d)) }
    }
    /// Squared near zero, linear beyond `delta`.
    real HuberLoss huber_loss(a, b; delta) {
        let d = abs(a - b); select(le(d, delta), lit(0.5) * d * d, delta * (d - lit(0.5) * delta))
    } => {
        { let d = a - b; dy * min(max(d, -delta), delta) }
        { let d = b - a; dy * min(max(d, -delta), delta) }
    }
    /// Cross-entropy of a probability; logarithms are kept above -100.
    real BinaryCrossEntropy binary_cross_entropy(a, b) {
        (b - ONE) * max(log1p(-a), lit(-100.0)) - b * max(log(a), lit(-100.0))
    } => {
        { dy * (a - b) / max(a * (ONE - a), lit(1e-12)) }
        { dy * (max(log1p(-a), lit(-100.0)) - max(log(a), lit(-100.0))) }
    }
    /// Cross-entropy of a logit.
    real BinaryCrossEntropyWithLogits binary_cross_entropy_with_logits(a, b) {
        max(a, ZERO) - a * b + log1p(exp(-abs(a)))
    } => { { dy * (sigmoid(a) - b) } { -dy * a } }
    /// Divergence of the log-probability `a` from the probability `b`.
    real KlDiv kl_div(a, b) { select(gt(b, ZERO), b * (log(select(gt(b, ZERO), b, ONE)) - a), -(a * b)) } => {
        { -dy * b } { dy * select(gt(b, ZERO), log(select(gt(b, ZERO), b, ONE)) + ONE - a, -lit(INFINITY)) }
    }
    /// The same with the target a log-probability too.
    real KlDivLog kl_div_log(a, b) { exp(b) * (b - a) } => { { -dy * exp(b) } { dy * exp(b) * (b - a + ONE) } }
}
