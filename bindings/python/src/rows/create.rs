//! New tensors: constants, ranges, random numbers.

use super::shape::formatted;
use crate::rows;
use crate::value::{Factory, MemoryFormat, Out, Sizes, size};
use rushlight_core::rng::default_generator;
use rushlight_core::{DType, Error, Generator, Result, Scalar};
use rushlight_tensor::{Arg, Options, Tensor, tril_indices, triu_indices};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn full(shape: &Sizes, value: Scalar, factory: &Factory) -> Result<Tensor> {
    let otherwise = if let Scalar::Float(_) = value { crate::dtype::default() } else { value.dtype() };
    factory.finish(Tensor::full_with(&shape.0, value, factory.options_or(otherwise))?)
}

fn constant(shape: &Sizes, value: i64, factory: &Factory) -> Result<Tensor> {
    let options = factory.options();
    let made =
        if value == 0 { Tensor::zeros_with(&shape.0, options)? } else { Tensor::full_with(&shape.0, value, options)? };
    factory.finish(made)
}

fn like(input: &Tensor, value: Scalar, factory: &Factory) -> Result<Tensor> {
    factory.finish(input.full_like_with(value, factory.options_like(input))?)
}

/// A new leaf in another memory format.
fn ordered(made: Result<Tensor>, format: MemoryFormat) -> Result<Tensor> {
    let made = made?;
    if format == MemoryFormat::Preserve {
        return Ok(made);
    }
    let requires_grad = made.requires_grad();
    formatted(&made.detach(), format)?.requires_grad_(requires_grad)
}

/// Whether memory of `empty` is filled, so that programs that read it fail alike every time.
static FILLS: AtomicBool = AtomicBool::new(false);

/// Switches the filling of `empty`'s memory. The other crates that compile these rows have no such setting.
#[allow(dead_code)]
pub fn fill_fresh_memory(fill: bool) {
    FILLS.store(fill, Relaxed);
}

/// PyTorch's value for memory that is not initialised: NaN, or the largest integer.
fn fresh_value(dtype: DType) -> Scalar {
    if !FILLS.load(Relaxed) {
        return Scalar::Int(0);
    }
    match dtype {
        DType::Bool => Scalar::Bool(true),
        DType::U8 => Scalar::Int(u8::MAX.into()),
        DType::I8 => Scalar::Int(i8::MAX.into()),
        DType::I16 => Scalar::Int(i16::MAX.into()),
        DType::I32 => Scalar::Int(i32::MAX.into()),
        DType::I64 => Scalar::Int(i64::MAX),
        DType::U16 => Scalar::Int(u16::MAX.into()),
        DType::U32 => Scalar::Int(u32::MAX.into()),
        DType::U64 => Scalar::Unsigned(u64::MAX),
        _ => Scalar::Float(f64::NAN),
    }
}

/// Fills memory that is not initialised if that is switched on.
fn fresh(made: Tensor) -> Result<Tensor> {
    if FILLS.load(Relaxed) {
        made.fill_(fresh_value(made.dtype()))?;
    }
    Ok(made)
}

fn new_full(input: &Tensor, shape: &Sizes, value: Scalar, factory: &Factory) -> Result<Tensor> {
    factory.finish(Tensor::full_with(&shape.0, value, factory.options_like(input))?)
}

/// The number of whole steps that fit, both ends included.
fn range(start: f64, end: f64, step: f64, factory: &Factory) -> Result<Tensor> {
    let steps = ((end - start) / step).floor();
    // Half a step further, so that rounding does not lose the last number. The engine reports invalid bounds.
    let end = if steps >= 0.0 { start + step * (steps + 0.5) } else { end };
    factory.finish(Tensor::arange_with(start, end, step, factory.options())?)
}

fn arange(start: Scalar, end: Scalar, step: Scalar, factory: &Factory) -> Result<Tensor> {
    let float = [start, end, step].iter().any(|s| matches!(s, Scalar::Float(_)));
    let otherwise = if float { crate::dtype::default() } else { DType::I64 };
    if factory.dtype == Some(DType::Bool) {
        return Err(Error::dtype("arange: not implemented for bool"));
    }
    factory.finish(Tensor::arange_with(start, end, step, factory.options_or(otherwise))?)
}

fn eye(n: i64, m: Option<i64>, factory: &Factory) -> Result<Tensor> {
    let n = size(n, "eye: n")?;
    let m = m.map_or(Ok(n), |m| size(m, "eye: m"))?;
    factory.finish(Tensor::eye_with(n, m, factory.options())?)
}

fn generator(given: Option<&Generator>) -> &Generator {
    given.unwrap_or_else(|| default_generator())
}

fn rand(shape: &Sizes, from: Option<&Generator>, factory: &Factory) -> Result<Tensor> {
    factory.finish(Tensor::rand_from(generator(from), &shape.0, factory.options())?)
}

fn randn(shape: &Sizes, from: Option<&Generator>, factory: &Factory) -> Result<Tensor> {
    factory.finish(Tensor::randn_from(generator(from), &shape.0, factory.options())?)
}

/// Integers from any generator: scaled uniform numbers, exact for ranges below 2^53.
fn randint(
    low: i64,
    high: i64,
    shape: &[usize],
    from: Option<&Generator>,
    options: Options,
    dtype: DType,
) -> Result<Tensor> {
    let Some(from) = from else {
        return Tensor::randint_with(low, high, shape, options);
    };
    if low >= high {
        return Err(Error::value(format!(
            "random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )));
    }
    let uniform = Tensor::rand_from(from, shape, options.dtype(DType::F64))?;
    uniform.mul(high as f64 - low as f64)?.floor()?.add(low as f64)?.to_dtype(dtype)
}

fn randint_made(low: i64, high: i64, shape: &Sizes, from: Option<&Generator>, factory: &Factory) -> Result<Tensor> {
    let dtype = factory.dtype.unwrap_or(DType::I64);
    factory.finish(randint(low, high, &shape.0, from, factory.options_or(DType::I64), dtype)?)
}

fn randint_like(
    input: &Tensor,
    low: i64,
    high: i64,
    from: Option<&Generator>,
    format: MemoryFormat,
    factory: &Factory,
) -> Result<Tensor> {
    let dtype = factory.dtype.unwrap_or(input.dtype());
    let made = randint(low, high, input.shape(), from, factory.options_like(input), dtype)?;
    ordered(factory.finish(made.in_order_of(input)?), format)
}

fn randperm(n: i64, from: Option<&Generator>, factory: &Factory) -> Result<Tensor> {
    let made = Tensor::randperm_from(generator(from), size(n, "randperm: n")?)?;
    factory.finish(factory.placed(made.to_dtype(factory.dtype.unwrap_or(DType::I64))?)?)
}

/// Fills a tensor with uniform numbers from a generator.
fn uniform_(input: &Tensor, low: f64, high: f64, from: Option<&Generator>) -> Result<()> {
    match from {
        None => input.uniform_(low, high)?,
        Some(from) => {
            let made = Tensor::rand_from(from, input.shape(), Options::from(input.dtype()).device(input.device()))?;
            input.copy_(&made.mul(high - low)?.add(low)?)?
        }
    };
    Ok(())
}

fn normal_(input: &Tensor, mean: f64, std: f64, from: Option<&Generator>) -> Result<()> {
    match from {
        None => input.normal_(mean, std)?,
        Some(from) => {
            if std < 0.0 {
                return Err(Error::value(format!("normal expects std >= 0.0, but found std {std}")));
            }
            let made = Tensor::randn_from(from, input.shape(), Options::from(input.dtype()).device(input.device()))?;
            input.copy_(&made.mul(std)?.add(mean)?)?
        }
    };
    Ok(())
}

/// Uniform numbers of a tensor's shape, from which other distributions are computed. Never zero: logarithms are finite.
fn uniform_like(input: &Tensor, from: Option<&Generator>) -> Result<Tensor> {
    let made = Tensor::rand_from(generator(from), input.shape(), (DType::F64, input.device()))?;
    made.rsub(1.0)
}

fn first(done: Result<()>) -> Result<Out> {
    done.map(|()| Out::First)
}

/// Samples by the inverse of a distribution function.
fn fill_(input: &Tensor, from: Option<&Generator>, inverse: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Out> {
    input.copy_(&inverse(&uniform_like(input, from)?)?.to_dtype(input.dtype())?)?;
    Ok(Out::First)
}

/// An error unless a distribution has these parameters.
fn expects(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::value(message())) }
}

/// The exponential is taken in `f64`, where it is the same with every instruction set.
fn log_normal_(input: &Tensor, mean: f64, std: f64, from: Option<&Generator>) -> Result<Out> {
    let normal = Tensor::randn_from(generator(from), input.shape(), (input.dtype(), input.device()))?;
    input.copy_(&normal.to_dtype(DType::F64)?.mul(std)?.add(mean)?.exp()?.to_dtype(input.dtype())?)?;
    Ok(Out::First)
}

fn bernoulli(input: &Tensor, p: Option<f64>, from: Option<&Generator>) -> Result<Tensor> {
    if let Some(p) = p {
        expects((0.0..=1.0).contains(&p), || format!("bernoulli_ expects p to be in [0, 1], but got p={p}"))?;
    }
    match (p, from) {
        (None, None) => input.bernoulli(),
        (p, from) => {
            let uniform = Tensor::rand_from(generator(from), input.shape(), (DType::F64, input.device()))?;
            let below = match p {
                Some(p) => uniform.lt(p)?,
                None => uniform.lt(input)?,
            };
            below.to_dtype(input.dtype())
        }
    }
}

fn normal(mean: &Tensor, std: &Tensor, from: Option<&Generator>) -> Result<Tensor> {
    // On a GPU the check would synchronise with the device, which a recorded step cannot.
    if std.device().is_cpu() && std.lt(0)?.any(..)?.item::<bool>()? {
        return Err(Error::value("normal expects all elements of std >= 0.0"));
    }
    let shape = rushlight_core::layout::broadcast_shapes(mean.shape(), std.shape())?;
    let dtype = mean.dtype().promote(std.dtype());
    Tensor::randn_from(generator(from), &shape, (dtype, mean.device()))?.mul(std)?.add(mean)
}

fn multinomial(input: &Tensor, count: i64, replacement: bool, from: Option<&Generator>) -> Result<Tensor> {
    let count = size(count, "multinomial: num_samples")?;
    let Some(from) = from else {
        return input.multinomial(count, replacement);
    };
    // Runs on the default generator, with the given generator's state for this call.
    let (own, given) = (default_generator().state(), from.state());
    default_generator().set_state(given);
    let drawn = input.multinomial(count, replacement);
    from.set_state(default_generator().state());
    default_generator().set_state(own);
    drawn
}

/// Poisson samples by counting arrivals, element by element.
fn poisson(input: &Tensor, from: Option<&Generator>) -> Result<Tensor> {
    let rates = input.to_vec::<f64>()?;
    if let Some(bad) = rates.iter().find(|r| r.is_nan() || **r < 0.0) {
        return Err(Error::value(format!(
            "poisson: invalid Poisson rate, expected rate to be non-negative, got {bad}"
        )));
    }
    let stream = generator(from).reserve(2);
    let source = Generator::new(stream.seed ^ stream.offset.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut drawn = Vec::with_capacity(rates.len());
    for rate in rates {
        // Splits large rates: exp(-rate) would underflow.
        let (mut left, mut count) = (rate, 0.0);
        while left > 0.0 {
            let portion = left.min(30.0);
            left -= portion;
            let (limit, mut product) = ((-portion).exp(), 1.0);
            loop {
                product *= rushlight_core::rng::uniform_f64(source.reserve(2).word64(0));
                if product <= limit {
                    break;
                }
                count += 1.0;
            }
        }
        drawn.push(count);
    }
    Tensor::from_slice(&drawn, input.shape())?.to_dtype(input.dtype())?.to(input.device())
}

fn window(length: i64, periodic: bool, factory: &Factory, weights: impl Fn(f64) -> f64) -> Result<Tensor> {
    let n = size(length, "window_length")?;
    let span = if periodic { n } else { n.saturating_sub(1) } as f64;
    let mut values: Vec<f64> = Vec::new();
    values
        .try_reserve_exact(n)
        .map_err(|_| Error::out_of_memory(format!("a window of length {n} does not fit in memory")))?;
    values.extend((0..n).map(|i| if n == 1 { 1.0 } else { weights(i as f64 / span) }));
    let dtype = factory.dtype.unwrap_or_else(crate::dtype::default);
    factory.finish(factory.placed(Tensor::from_slice(&values, [n])?.to_dtype(dtype)?)?)
}

const TAU: f64 = std::f64::consts::TAU;

rows! { ROWS:
    /// Zeros.
    zeros [Torch] "zeros(int... size, **factory)" |shape: Sizes, factory: Factory| constant(&shape, 0, &factory);
    /// Ones.
    ones [Torch] "ones(int... size, **factory)" |shape: Sizes, factory: Factory| constant(&shape, 1, &factory);
    /// Uninitialised memory.
    empty [Torch] "empty(int... size, *, memory_format? memory_format=None, **factory)" |shape: Sizes, format: MemoryFormat, factory: Factory|
        ordered(factory.finish(fresh(Tensor::empty_with(&shape.0, factory.options())?)?), format);
    /// One number in every element.
    full [Torch] "full(int[1] size, Number fill_value, **factory)" |shape: Sizes, value: Scalar, factory: Factory| full(&shape, value, &factory);
    /// Zeros like another tensor.
    zeros_like [Torch] "zeros_like(Tensor input, *, memory_format? memory_format=None, **factory)"
        |input: &Tensor, format: MemoryFormat, factory: Factory| ordered(like(input, Scalar::Int(0), &factory), format);
    /// Ones like another tensor.
    ones_like [Torch] "ones_like(Tensor input, *, memory_format? memory_format=None, **factory)"
        |input: &Tensor, format: MemoryFormat, factory: Factory| ordered(like(input, Scalar::Int(1), &factory), format);
    /// Uninitialised memory like another tensor.
    empty_like [Torch] "empty_like(Tensor input, *, memory_format? memory_format=None, **factory)"
        |input: &Tensor, format: MemoryFormat, factory: Factory|
        ordered(like(input, fresh_value(factory.dtype.unwrap_or(input.dtype())), &factory), format);
    /// One number like another tensor.
    full_like [Torch] "full_like(Tensor input, Number fill_value, *, memory_format? memory_format=None, **factory)"
        |input: &Tensor, value: Scalar, format: MemoryFormat, factory: Factory| ordered(like(input, value, &factory), format);
    /// Zeros of this tensor's dtype.
    new_zeros [Method] "new_zeros(Tensor self, int... size, **factory)" |input: &Tensor, shape: Sizes, factory: Factory| new_full(input, &shape, Scalar::Int(0), &factory);
    /// Ones of this tensor's dtype.
    new_ones [Method] "new_ones(Tensor self, int... size, **factory)" |input: &Tensor, shape: Sizes, factory: Factory| new_full(input, &shape, Scalar::Int(1), &factory);
    /// Uninitialised memory of this tensor's dtype.
    new_empty [Method] "new_empty(Tensor self, int... size, **factory)" |input: &Tensor, shape: Sizes, factory: Factory|
        factory.finish(fresh(Tensor::empty_with(&shape.0, factory.options_like(input))?)?);
    /// One number of this tensor's dtype.
    new_full [Method] "new_full(Tensor self, int[1] size, Number fill_value, **factory)" |input: &Tensor, shape: Sizes, value: Scalar, factory: Factory|
        new_full(input, &shape, value, &factory);
    /// Numbers from `start` to before `end`.
    arange [Torch]
        "arange(Number end, **factory)" |end: Scalar, factory: Factory| arange(Scalar::Int(0), end, Scalar::Int(1), &factory),
        "arange(Number start, Number end, Number step=1, **factory)" |start: Scalar, end: Scalar, step: Scalar, factory: Factory| arange(start, end, step, &factory);
    /// Numbers from `start` to `end` inclusive, as floats.
    range [Torch] "range(Number start=0, Number end=0, Number step=1, **factory)" |start: f64, end: f64, step: f64, factory: Factory|
        range(start, end, step, &factory);
    /// Numbers evenly spaced from `start` to `end`.
    linspace [Torch] "linspace(Tensor|Number start, Tensor|Number end, int steps, **factory)" |start: Arg, end: Arg, steps: i64, factory: Factory|
        factory.finish(linspace(number(start)?, number(end)?, size(steps, "linspace: steps")?, &factory)?);
    /// Powers of a base, exponents evenly spaced.
    logspace [Torch] "logspace(Tensor|Number start, Tensor|Number end, int steps, float base=10.0, **factory)" |start: Arg, end: Arg, steps: i64, base: f64, factory: Factory|
        factory.finish(logspace(number(start)?, number(end)?, size(steps, "logspace: steps")?, base, &factory)?);
    /// Ones on the diagonal.
    eye [Torch] "eye(int n, int? m=None, **factory)" |n: i64, m: Option<i64>, factory: Factory| eye(n, m, &factory);
    /// A number as a tensor.
    scalar_tensor [Torch] "scalar_tensor(Number s, **factory)" |s: Scalar, factory: Factory| factory.finish(Tensor::full_with([], s, factory.options())?);
    /// Uniform numbers in [0, 1).
    rand [Torch] "rand(int... size, *, Generator? generator=None, **factory)" |shape: Sizes, from: Option<&Generator>, factory: Factory| rand(&shape, from, &factory);
    /// Normal numbers.
    randn [Torch] "randn(int... size, *, Generator? generator=None, **factory)" |shape: Sizes, from: Option<&Generator>, factory: Factory| randn(&shape, from, &factory);
    /// Uniform numbers like another tensor.
    rand_like [Torch] "rand_like(Tensor input, *, memory_format? memory_format=None, Generator? generator=None, **factory)"
        |input: &Tensor, format: MemoryFormat, from: Option<&Generator>, factory: Factory|
        ordered(factory.finish(Tensor::rand_from(generator(from), input.shape(), factory.options_like(input))?.in_order_of(input)?), format);
    /// Normal numbers like another tensor.
    randn_like [Torch] "randn_like(Tensor input, *, memory_format? memory_format=None, Generator? generator=None, **factory)"
        |input: &Tensor, format: MemoryFormat, from: Option<&Generator>, factory: Factory|
        ordered(factory.finish(Tensor::randn_from(generator(from), input.shape(), factory.options_like(input))?.in_order_of(input)?), format);
    /// Integers from `low` to before `high`.
    randint [Torch]
        "randint(int high, int[] size, *, Generator? generator=None, **factory)" |high: i64, shape: Sizes, from: Option<&Generator>, factory: Factory|
            randint_made(0, high, &shape, from, &factory),
        "randint(int low, int high, int[] size, *, Generator? generator=None, **factory)"
            |low: i64, high: i64, shape: Sizes, from: Option<&Generator>, factory: Factory| randint_made(low, high, &shape, from, &factory);
    /// Integers like another tensor.
    randint_like [Torch]
        "randint_like(Tensor input, int high, *, Generator? generator=None, memory_format? memory_format=None, **factory)"
            |input: &Tensor, high: i64, from: Option<&Generator>, format: MemoryFormat, factory: Factory| randint_like(input, 0, high, from, format, &factory),
        "randint_like(Tensor input, int low, int high, *, Generator? generator=None, memory_format? memory_format=None, **factory)"
            |input: &Tensor, low: i64, high: i64, from: Option<&Generator>, format: MemoryFormat, factory: Factory| randint_like(input, low, high, from, format, &factory);
    /// The numbers below `n` in random order.
    randperm [Torch] "randperm(int n, *, Generator? generator=None, **factory)" |n: i64, from: Option<&Generator>, factory: Factory| randperm(n, from, &factory);
    /// Normal numbers with means and deviations.
    normal [Torch]
        "normal(Tensor mean, Tensor std, *, Generator? generator=None)" |mean: &Tensor, std: &Tensor, from: Option<&Generator>| normal(mean, std, from),
        "normal(Tensor mean, float std=1.0, *, Generator? generator=None)" |mean: &Tensor, std: f64, from: Option<&Generator>|
            normal(mean, &Tensor::full_with([], std, (mean.dtype(), mean.device()))?, from),
        "normal(float mean, Tensor std, *, Generator? generator=None)" |mean: f64, std: &Tensor, from: Option<&Generator>|
            normal(&Tensor::full_with([], mean, (std.dtype(), std.device()))?, std, from),
        "normal(float mean, float std, int[] size, *, Generator? generator=None, **factory)"
            |mean: f64, std: f64, shape: Sizes, from: Option<&Generator>, factory: Factory|
            expects(std >= 0.0, || format!("normal expects std >= 0.0, but found std {std}"))
                .and_then(|()| factory.finish(Tensor::randn_from(generator(from), &shape.0, factory.options())?.mul(std)?.add(mean)?));
    /// Bernoulli samples with the elements as probabilities.
    bernoulli [Torch Method] "bernoulli(Tensor input, float? p=None, *, Generator? generator=None)" |input: &Tensor, p: Option<f64>, from: Option<&Generator>| bernoulli(input, p, from);
    /// Samples indices with the elements as weights.
    multinomial [Torch Method] "multinomial(Tensor input, int num_samples, bool replacement=False, *, Generator? generator=None)"
        |input: &Tensor, count: i64, replacement: bool, from: Option<&Generator>| multinomial(input, count, replacement, from);
    /// Poisson samples with the elements as rates.
    poisson [Torch] "poisson(Tensor input, Generator? generator=None)" |input: &Tensor, from: Option<&Generator>| poisson(input, from);
    /// Uniform numbers in place.
    uniform_ [Method] "uniform_(Tensor self, float from=0.0, float to=1.0, *, Generator? generator=None)" |input: &Tensor, low: f64, high: f64, from: Option<&Generator>|
        first(uniform_(input, low, high, from));
    /// Normal numbers in place.
    normal_ [Method] "normal_(Tensor self, float mean=0.0, float std=1.0, *, Generator? generator=None)" |input: &Tensor, mean: f64, std: f64, from: Option<&Generator>|
        first(normal_(input, mean, std, from));
    /// Bernoulli samples in place.
    bernoulli_ [Method]
        "bernoulli_(Tensor self, float p=0.5, *, Generator? generator=None)" |input: &Tensor, p: f64, from: Option<&Generator>|
            input.copy_(&bernoulli(input, Some(p), from)?).map(|_| Out::First),
        "bernoulli_(Tensor self, Tensor p, *, Generator? generator=None)" |input: &Tensor, p: &Tensor, from: Option<&Generator>|
            input.copy_(&bernoulli(&p.expand(input.shape())?, None, from)?).map(|_| Out::First);
    /// Integers in place: below `to`, or between `from` and `to`, or all that the dtype represents exactly.
    random_ [Method]
        "random_(Tensor self, *, Generator? generator=None)" |input: &Tensor, from: Option<&Generator>| random_(input, 0, None, from),
        "random_(Tensor self, int to, *, Generator? generator=None)" |input: &Tensor, to: i64, from: Option<&Generator>| random_(input, 0, Some(to), from),
        "random_(Tensor self, int from, int? to, *, Generator? generator=None)" |input: &Tensor, low: i64, to: Option<i64>, from: Option<&Generator>| random_(input, low, to, from);
    /// Exponential samples in place.
    exponential_ [Method] "exponential_(Tensor self, float lambd=1.0, *, Generator? generator=None)" |input: &Tensor, lambd: f64, from: Option<&Generator>|
        expects(lambd > 0.0, || format!("exponential_ expects lambda > 0.0, but found lambda={lambd}"))
            .and_then(|()| fill_(input, from, |u| u.log()?.div(-lambd)));
    /// Geometric samples in place.
    geometric_ [Method] "geometric_(Tensor self, float p, *, Generator? generator=None)" |input: &Tensor, p: f64, from: Option<&Generator>|
        expects(0.0 < p && p < 1.0, || format!("geometric_ expects p to be in (0, 1), but got p={p}"))
            .and_then(|()| fill_(input, from, |u| u.log()?.div((-p).ln_1p())?.ceil()));
    /// Cauchy samples in place.
    cauchy_ [Method] "cauchy_(Tensor self, float median=0.0, float sigma=1.0, *, Generator? generator=None)" |input: &Tensor, median: f64, sigma: f64, from: Option<&Generator>|
        expects(sigma > 0.0, || format!("cauchy_ expects sigma > 0.0, but found sigma={sigma}"))
            .and_then(|()| fill_(input, from, |u| u.sub(0.5)?.mul(std::f64::consts::PI)?.tan()?.mul(sigma)?.add(median)));
    /// Log-normal samples in place.
    log_normal_ [Method] "log_normal_(Tensor self, float mean=1.0, float std=2.0, *, Generator? generator=None)" |input: &Tensor, mean: f64, std: f64, from: Option<&Generator>|
        expects(std > 0.0, || format!("log_normal_ expects std > 0.0, but found std={std}")).and_then(|()| log_normal_(input, mean, std, from));
    /// Fills with a number.
    fill_ [Method]
        "fill_(Tensor self, Tensor value)" |input: &Tensor, value: &Tensor| match value.rank() {
            0 => input.copy_(value).map(|_| Out::First),
            _ => Err(Error::shape(format!("fill_ only supports 0-dimension value tensor but got tensor with shape {:?}", value.shape()))),
        },
        "fill_(Tensor self, Number value)" |input: &Tensor, value: Scalar| input.fill_(value).map(Out::from);
    /// A copy filled with a number.
    fill [Torch]
        "fill(Tensor input, Tensor value)" |input: &Tensor, value: &Tensor| match value.rank() {
            0 => {
                let filled = input.copy()?;
                filled.copy_(value)?;
                Ok(filled)
            }
            _ => Err(Error::shape(format!("fill only supports 0-dimension value tensor but got tensor with shape {:?}", value.shape()))),
        },
        "fill(Tensor input, Number value)" |input: &Tensor, value: Scalar| {
            let filled = input.copy()?;
            filled.fill_(value)?;
            Ok::<_, Error>(filled)
        };
    /// Zeros in place.
    zero_ [Method] "zero_(Tensor self)" |input: &Tensor| input.zero_();
    /// Fills the diagonal with a number.
    fill_diagonal_ [Method] "fill_diagonal_(Tensor self, Number fill_value, bool wrap=False)" |input: &Tensor, value: Scalar, wrap: bool| fill_diagonal_(input, value, wrap);
    /// Indices of the lower triangle of a matrix.
    tril_indices [Torch] "tril_indices(int row, int col, int offset=0, **factory)" |row: i64, col: i64, offset: i64, factory: Factory|
        tril_indices(size(row, "tril_indices: row")?, size(col, "tril_indices: col")?, offset)?
            .to_dtype(factory.dtype.unwrap_or(DType::I64))
            .and_then(|indices| factory.placed(indices));
    /// Indices of the upper triangle of a matrix.
    triu_indices [Torch] "triu_indices(int row, int col, int offset=0, **factory)" |row: i64, col: i64, offset: i64, factory: Factory|
        triu_indices(size(row, "triu_indices: row")?, size(col, "triu_indices: col")?, offset)?
            .to_dtype(factory.dtype.unwrap_or(DType::I64))
            .and_then(|indices| factory.placed(indices));
    /// Powers of the elements in columns.
    vander [Torch] "vander(Tensor x, int? N=None, bool increasing=False)" |x: &Tensor, n: Option<i64>, increasing: bool| vander(x, n, increasing);
    /// Powers of numbers as columns, the lowest first.
    vander [Linalg] "vander(Tensor x, *, int? N=None)" |x: &Tensor, n: Option<i64>| {
        let lifted = if x.rank() == 0 { x.reshape([1usize])? } else { x.clone() };
        match n {
            Some(n) if n <= 1 => Err(Error::value("N must be greater than 1.")),
            None if lifted.size(-1)? <= 1 => Err(Error::value("N must be greater than 1.")),
            _ => vander(&lifted, n, true),
        }
    };
    /// Hann window.
    hann_window [Torch] "hann_window(int window_length, bool periodic=True, **factory)" |n: i64, periodic: bool, factory: Factory|
        window(n, periodic, &factory, |x| 0.5 - 0.5 * (TAU * x).cos());
    /// Hamming window.
    hamming_window [Torch] "hamming_window(int window_length, bool periodic=True, float alpha=0.54, float beta=0.46, **factory)"
        |n: i64, periodic: bool, alpha: f64, beta: f64, factory: Factory| window(n, periodic, &factory, |x| alpha - beta * (TAU * x).cos());
    /// Blackman window.
    blackman_window [Torch] "blackman_window(int window_length, bool periodic=True, **factory)" |n: i64, periodic: bool, factory: Factory|
        window(n, periodic, &factory, |x| 0.42 - 0.5 * (TAU * x).cos() + 0.08 * (2.0 * TAU * x).cos());
    /// Bartlett window.
    bartlett_window [Torch] "bartlett_window(int window_length, bool periodic=True, **factory)" |n: i64, periodic: bool, factory: Factory|
        window(n, periodic, &factory, |x| 1.0 - (2.0 * x - 1.0).abs());
}

fn random_(input: &Tensor, low: i64, high: Option<i64>, from: Option<&Generator>) -> Result<Out> {
    // Without a bound: the integers that the dtype represents exactly.
    let high = high.unwrap_or(match input.dtype() {
        DType::F32 => 1 << 24,
        DType::F64 => 1 << 53,
        DType::F16 => 1 << 11,
        DType::BF16 => 1 << 8,
        DType::I64 => i64::MAX,
        DType::I32 => i32::MAX as i64,
        DType::I16 => i16::MAX as i64,
        DType::I8 => i8::MAX as i64,
        DType::U8 => 256,
        DType::Bool => 2,
        DType::U16 => 1 << 16,
        DType::U32 => 1 << 32,
        DType::U64 => i64::MAX,
        dtype => return Err(Error::dtype(format!("random_: not implemented for {dtype}"))),
    });
    let (least, most) = match input.dtype() {
        DType::I32 => (i32::MIN as i64, i32::MAX as i64),
        DType::I16 => (i16::MIN as i64, i16::MAX as i64),
        DType::I8 => (i8::MIN as i64, i8::MAX as i64),
        DType::U8 => (0, 255),
        DType::Bool => (0, 1),
        _ => (i64::MIN, i64::MAX),
    };
    if low >= high {
        return Err(Error::value(format!(
            "random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )));
    }
    for (name, value) in [("from", low), ("to - 1", high.saturating_sub(1))] {
        if !(least..=most).contains(&value) {
            return Err(Error::value(format!("random_: {name} is out of bounds for {}: {value}", input.dtype())));
        }
    }
    input.copy_(&randint(low, high, input.shape(), from, Options::from(DType::I64), DType::I64)?)?;
    Ok(Out::First)
}

fn fill_diagonal_(input: &Tensor, value: Scalar, wrap: bool) -> Result<Out> {
    if input.rank() < 2 {
        return Err(Error::shape("fill_diagonal_: dimensions must be larger than 1"));
    }
    let n = input.shape()[0];
    if input.rank() == 2 {
        let columns = input.shape()[1];
        // With `wrap` the diagonal restarts one row after it leaves the matrix.
        let starts = (0..n).step_by(if wrap { columns + 1 } else { n.max(1) });
        for start in starts.filter(|_| columns > 0) {
            input.narrow(0, start as isize, n - start)?.diagonal(0, 0, 1)?.fill_(value)?;
        }
    } else if input.shape().iter().any(|&d| d != n) {
        return Err(Error::shape("fill_diagonal_: all dimensions of input must be of equal length"));
    } else {
        let step: usize = input.strides().iter().sum();
        input.as_strided(&[n], &[step], input.layout().offset())?.fill_(value)?;
    }
    Ok(Out::First)
}

/// A number, or the one element of a tensor.
fn number(given: Arg) -> Result<Scalar> {
    match given {
        Arg::Scalar(number) => Ok(number),
        Arg::Tensor(t) if t.rank() == 0 => t.to_scalar(),
        Arg::Tensor(t) => {
            Err(Error::shape(format!("expected a number or a 0-dimensional tensor, got shape {:?}", t.shape())))
        }
    }
}

/// Complex numbers at equal distances, in a wide dtype, with the dtype of the result; `None` if neither it nor the ends
/// are complex.
fn complex_values(
    name: &str,
    [start, end]: [Scalar; 2],
    steps: usize,
    factory: &Factory,
) -> Result<Option<(Tensor, DType)>> {
    let ends = [start, end].iter().any(|end| matches!(end, Scalar::Complex(..)));
    let dtype = factory.dtype.unwrap_or_else(rushlight_tensor::default_dtype);
    if !ends && !dtype.is_complex() {
        return Ok(None);
    }
    if factory.dtype.is_some() && !dtype.is_complex() {
        return Err(Error::dtype(format!(
            "{name}: the ends are complex numbers, which {dtype} does not hold; give a complex dtype"
        )));
    }
    let options = factory.options().dtype(DType::F64);
    let part = |of: fn(Scalar) -> f64| Tensor::linspace_with(of(start), of(end), steps, options);
    Ok(Some((rushlight_tensor::complex(&part(Scalar::to_f64)?, &part(Scalar::imag)?)?, dtype.complex())))
}

fn logspace(start: Scalar, end: Scalar, steps: usize, base: f64, factory: &Factory) -> Result<Tensor> {
    match complex_values("logspace", [start, end], steps, factory)? {
        Some((exponents, dtype)) => exponents.rpow(base)?.to_dtype(dtype),
        None => Tensor::logspace_with(start.to_f64(), end.to_f64(), steps, base, factory.options()),
    }
}

/// Negative integers wrap around in an unsigned dtype, as in PyTorch. One bool is the first end.
fn linspace(start: Scalar, end: Scalar, steps: usize, factory: &Factory) -> Result<Tensor> {
    if let Some((values, dtype)) = complex_values("linspace", [start, end], steps, factory)? {
        return values.to_dtype(dtype);
    }
    let options = factory.options();
    match factory.dtype {
        Some(DType::Bool) if steps < 2 => Tensor::full_with([steps], start.to_f64() != 0.0, options),
        Some(DType::U8) => {
            let wrapped = |end: Scalar| match end {
                Scalar::Int(i @ -255..0) => (i + 256) as f64,
                other => other.to_f64(),
            };
            Tensor::linspace_with(wrapped(start), wrapped(end), steps, options)
        }
        Some(dtype) if steps > 1 && matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64) => {
            // The ends are checked; values between are computed as `f32`, from both ends to the middle.
            let ends = Tensor::linspace_with(start.to_f64(), end.to_f64(), 2, options)?.to_dtype(DType::F64)?;
            let (start, end) = (ends.select(0, 0)?.item::<f64>()?, ends.select(0, 1)?.item::<f64>()?);
            let step = ((end - start) / (steps - 1) as f64) as f32 as f64;
            let place = Tensor::arange_with(0, steps, 1, (DType::F32, ends.device()))?;
            let (up, down) = (place.mul(step)?.add(start)?, place.rsub(steps as f64 - 1.0)?.mul(step)?.rsub(end)?);
            rushlight_tensor::where_(&place.lt((steps / 2) as f64)?, &up, &down)?.to_dtype(dtype)
        }
        _ => Tensor::linspace_with(start.to_f64(), end.to_f64(), steps, options),
    }
}

fn vander(x: &Tensor, n: Option<i64>, increasing: bool) -> Result<Tensor> {
    if x.rank() == 0 {
        return Err(Error::shape("x must be a one-dimensional tensor."));
    }
    let n = n.map_or(Ok(x.size(-1)?), |n| size(n, "vander: N"))?;
    if n > 1 << 20 {
        return Err(Error::value(format!("vander: {n} columns are more than the 2^20 that are supported")));
    }
    let x = if x.dtype().is_differentiable() { x.clone() } else { x.to_dtype(rushlight_core::DType::I64)? };
    // The zeroth power is a constant.
    let power = |k: usize| if k == 0 { x.detach().ones_like() } else { x.pow(k as i64) };
    if n == 0 {
        return Tensor::empty_with([x.shape(), &[0]].concat(), (x.dtype(), x.device()));
    }
    let columns = (0..n).map(|k| power(if increasing { k } else { n - 1 - k })).collect::<Result<Vec<_>>>()?;
    rushlight_tensor::stack(&columns.iter().collect::<Vec<_>>(), -1)
}
