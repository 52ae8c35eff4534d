//! Discrete Fourier transforms, with `torch.fft`'s names.
//!
//! Three transforms of a dimension are recorded; each is the other's derivative, or its own. Everything else permutes,
//! pads and conjugates around them.

use crate::Tensor;
use crate::autograd::{no_grad, record, recording};
use rushlight_core::backend::{Fft, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Device, Dims, Error, ErrorKind, Result};

/// What fits a core's own caches, in bytes.
const CACHE: usize = 1 << 20;

/// How a transform is scaled; `Backward` is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// Inverse transforms are divided by the size.
    #[default]
    Backward,
    /// Forward transforms are divided by the size.
    Forward,
    /// Both are divided by the root of the size.
    Ortho,
}

impl FftNorm {
    fn scale(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (FftNorm::Backward, false) | (FftNorm::Forward, true) => 1.0,
            (FftNorm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            _ => 1.0 / n as f64,
        }
    }
}

/// A contiguous tensor as the lines of a dimension: those of inner dimensions lie side by side.
fn lines(t: &Tensor, at: usize) -> Result<Tensor> {
    let shape = t.shape();
    let (rows, n, side): (usize, usize, usize) =
        (shape[..at].iter().product(), shape[at], shape[at + 1..].iter().product());
    match t.is_complex() {
        true if side > 1 => t.as_reals(&[rows, n, side, 2]),
        true => t.as_reals(&[rows, n, 2]),
        false => t.as_reals(&[rows, n]),
    }
}

/// An empty result of a transform of `x` whose dimension `at` has `n` numbers.
fn result(op: Fft, x: &Tensor, at: usize, n: usize) -> Result<Tensor> {
    let mut shape = Dims::from_slice(x.shape());
    shape[at] = if op == Fft::Real { n / 2 + 1 } else { n };
    x.uninit_like(&shape, if op == Fft::Hermitian { x.dtype().real() } else { x.dtype().complex() })
}

/// The most dimensions that an engine transforms at once.
const AT_ONCE: usize = 3;

/// The engine's transform of the last `dims` dimensions at once, not recorded; the last one has `n` numbers. `None`
/// where there are other dimensions behind or engines decline, as the CPU's does.
fn execute_at_once(op: Fft, x: &Tensor, dims: &[usize], n: usize, scale: f64) -> Result<Option<Tensor>> {
    let rank = x.rank();
    let first = rank - dims.len().min(rank);
    if x.device().is_cpu() || !(2..=AT_ONCE).contains(&dims.len()) || (first..rank).any(|d| !dims.contains(&d)) {
        return Ok(None);
    }
    no_grad(|| {
        let (source, out) = (x.detach().contiguous()?, result(op, x, rank - 1, n)?);
        if out.numel() == 0 {
            return Ok(Some(out));
        }
        let batch = |t: &Tensor| {
            let mut shape = Dims::from_slice(&[t.shape()[..first].iter().product()]);
            shape.extend_from_slice(&t.shape()[first..]);
            if t.is_complex() {
                shape.push(2);
            }
            t.as_reals(&shape)
        };
        let (from, to) = (batch(&source)?, batch(&out)?);
        match to.run(call::Fft { op, dims: dims.len(), scale, x: from.engine_view(), out: to.engine_view() }) {
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
            done => done.map(|()| Some(out)),
        }
    })
}

/// The engine's transform along dimension `at` of `x`, not recorded. The CPU computes what an engine declines; only it
/// takes a complex transform of another dimension than the last.
fn execute(op: Fft, x: &Tensor, at: usize, n: usize, scale: f64) -> Result<Tensor> {
    no_grad(|| {
        let source = x.detach().contiguous()?;
        let out = result(op, x, at, n)?;
        if out.numel() == 0 {
            return Ok(out);
        }
        let run = |source: &Tensor, out: &Tensor| {
            let (from, to) = (lines(source, at)?, lines(out, at)?);
            to.run(call::Fft { op, dims: 1, scale, x: from.engine_view(), out: to.engine_view() })
        };
        match run(&source, &out) {
            Err(e) if e.kind() == ErrorKind::Unsupported && !x.device().is_cpu() => {
                let host = Tensor::empty_with(out.shape(), (out.dtype(), Device::Cpu))?;
                run(&source.to(Device::Cpu)?, &host)?;
                host.to(x.device())
            }
            done => done.map(|()| out),
        }
    })
}

/// The transform of complex numbers along a dimension.
fn complex_along(x: &Tensor, dim: isize, inverse: bool, scale: f64) -> Result<Tensor> {
    let at = x.wrap_dim("fft", dim)?;
    if at + 1 < x.rank() && !x.device().is_cpu() {
        return complex_along(&x.movedim(dim, -1)?, -1, inverse, scale)?.movedim(-1, dim);
    }
    let out = execute(Fft::Complex { inverse }, x, at, x.size(dim)?, scale)?;
    if recording(&[x]) {
        record("fft_c2c", &[x], &out, move |_, dy| {
            Ok(smallvec![Some(complex_along(dy, at as isize, !inverse, scale)?)])
        })?;
    }
    Ok(out)
}

/// Transforms along several dimensions of a tensor on the CPU, each with its factor, not recorded. All but the first
/// are in place; those of the innermost dimension come first, as they read and write in order. So many parts of a batch
/// as fit the processor's caches are transformed one after the other. A `fresh` tensor is nobody else's and takes the
/// result.
fn execute_all(x: &Tensor, dims: &[(usize, f64)], inverse: bool, fresh: bool) -> Result<Tensor> {
    no_grad(|| {
        let source = x.detach().contiguous()?;
        let out = if fresh { source.clone() } else { x.uninit_like(x.shape(), x.dtype())? };
        if out.numel() == 0 {
            return Ok(out);
        }
        let mut dims = dims.to_vec();
        dims.sort_unstable_by_key(|&(at, _)| std::cmp::Reverse(at));
        let batch: usize = dims.last().map_or(1, |&(at, _)| x.shape()[..at].iter().product());
        let size = out.numel() / batch * out.dtype().size();
        let group = (CACHE * rushlight_engines::threads() / size).clamp(1, batch);
        let steps = dims.iter().enumerate().map(|(i, &(at, scale))| {
            let to = lines(&out, at)?;
            Ok((if i == 0 { lines(&source, at)? } else { to.clone() }, to, scale))
        });
        let steps: Vec<_> = steps.collect::<Result<_>>()?;
        for start in (0..batch).step_by(group) {
            let count = group.min(batch - start);
            for (from, to, scale) in &steps {
                let part = |t: &Tensor| {
                    let rows = t.shape()[0] / batch;
                    t.narrow(0, (start * rows) as isize, count * rows)
                };
                let (from, to) = (part(from)?, part(to)?);
                let (x, out) = (from.engine_view(), to.engine_view());
                to.run(call::Fft { op: Fft::Complex { inverse }, dims: 1, scale: *scale, x, out })?;
            }
        }
        Ok(out)
    })
}

/// Transforms of complex numbers along several dimensions, each with its factor. A `fresh` tensor is nobody else's.
fn complex_all(x: &Tensor, dims: &[(usize, f64)], inverse: bool, fresh: bool) -> Result<Tensor> {
    if !x.device().is_cpu() {
        let (places, scale) = places_and_scale(dims);
        let n = x.shape().last().copied().unwrap_or(1);
        if let Some(out) = execute_at_once(Fft::Complex { inverse }, x, &places, n, scale)? {
            return recorded_complex(x, out, dims, inverse);
        }
    }
    if dims.len() == 1 && !fresh || !x.device().is_cpu() {
        return dims.iter().try_fold(x.clone(), |x, &(at, scale)| complex_along(&x, at as isize, inverse, scale));
    }
    if dims.is_empty() {
        return Ok(x.clone());
    }
    let out = execute_all(x, dims, inverse, fresh && x.is_contiguous())?;
    recorded_complex(x, out, dims, inverse)
}

fn recorded_complex(x: &Tensor, out: Tensor, dims: &[(usize, f64)], inverse: bool) -> Result<Tensor> {
    if recording(&[x]) {
        let dims = dims.to_vec();
        record("fft_c2c", &[x], &out, move |_, dy| Ok(smallvec![Some(complex_all(dy, &dims, !inverse, false)?)]))?;
    }
    Ok(out)
}

/// Dimensions apart from the product of their factors.
fn places_and_scale(dims: &[(usize, f64)]) -> (Vec<usize>, f64) {
    (dims.iter().map(|&(at, _)| at).collect(), dims.iter().map(|&(_, scale)| scale).product())
}

/// The transform of a real signal along its last dimensions at once, half of the very last one, each with its factor;
/// `None` where there is no such transform.
fn real_all(x: &Tensor, dims: &[(usize, f64)]) -> Result<Option<Tensor>> {
    let (places, scale) = places_and_scale(dims);
    let n = x.shape().last().copied().unwrap_or(1);
    let Some(out) = execute_at_once(Fft::Real, x, &places, n, scale)? else { return Ok(None) };
    if recording(&[x]) {
        let dims = dims.to_vec();
        record("fft_r2c", &[x], &out, move |_, dy| {
            Ok(smallvec![Some(complex_all(&resized(dy, -1, n)?, &dims, true, false)?.real()?)])
        })?;
    }
    Ok(Some(out))
}

/// The first half of the transform of real rows.
fn real_rows(x: &Tensor, scale: f64) -> Result<Tensor> {
    let n = x.size(-1)?;
    let out = execute(Fft::Real, x, x.rank() - 1, n, scale)?;
    if recording(&[x]) {
        record("fft_r2c", &[x], &out, move |_, dy| {
            Ok(smallvec![Some(complex_along(&resized(dy, -1, n)?, -1, true, scale)?.real()?)])
        })?;
    }
    Ok(out)
}

/// Real rows of `n` from the first half of their transform.
fn hermitian_rows(x: &Tensor, n: usize, scale: f64) -> Result<Tensor> {
    let out = execute(Fft::Hermitian, x, x.rank() - 1, n, scale)?;
    if recording(&[x]) {
        record("fft_c2r", &[x], &out, move |_, dy| {
            // All numbers but the first, and the middle one, stand for two.
            let half = real_rows(dy, scale)?;
            let count = half.size(-1)?;
            let twice = no_grad(|| -> Result<Tensor> {
                let weights = Tensor::full_with([count], 2.0, (dy.dtype(), dy.device()))?;
                weights.narrow(0, 0, 1)?.fill_(1.0)?;
                if n.is_multiple_of(2) {
                    weights.narrow(0, -1, 1)?.fill_(1.0)?;
                }
                Ok(weights)
            })?;
            Ok(smallvec![Some(half.mul(&twice)?)])
        })?;
    }
    Ok(out)
}

/// A dimension cut off, or continued with zeros, to a size.
fn resized(x: &Tensor, dim: isize, n: usize) -> Result<Tensor> {
    let have = x.size(dim)?;
    if n <= have {
        return if n == have { Ok(x.clone()) } else { x.narrow(dim, 0, n) };
    }
    let mut shape = Dims::from_slice(x.shape());
    let at = x.wrap_dim("fft", dim)?;
    shape[at] = n - have;
    crate::cat(&[x, &Tensor::zeros_with(&shape, (x.dtype(), x.device()))?], dim)
}

/// Something done with a dimension in the last place.
fn along(x: &Tensor, dim: isize, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if x.wrap_dim("fft", dim)? + 1 == x.rank() {
        return f(x);
    }
    f(&x.movedim(dim, -1)?)?.movedim(-1, dim)
}

/// Integers as floats; an error for the dtypes that transforms do not take.
fn promoted(name: &str, x: &Tensor, to_complex: bool) -> Result<Tensor> {
    let dtype = match x.dtype() {
        DType::F16 | DType::BF16 | DType::C32 => {
            return Err(Error::dtype(format!("{name}: Unsupported dtype {}; convert it with to_dtype", x.dtype())));
        }
        d if d.is_differentiable() => d,
        _ => crate::default_dtype(),
    };
    x.to_dtype(if to_complex { dtype.complex() } else { dtype })
}

fn needs_real(name: &str, x: &Tensor) -> Result<()> {
    if x.is_complex() {
        return Err(Error::dtype(format!("{name}: expects a real input tensor, but got {}", x.dtype())));
    }
    Ok(())
}

fn checked(name: &str, n: usize) -> Result<usize> {
    match n {
        0 => Err(Error::value(format!("{name}: Invalid number of data points (0) specified"))),
        n => Ok(n),
    }
}

/// The dimensions of a transform over several, each with its size.
struct Plan {
    dims: Vec<isize>,
    sizes: Vec<usize>,
}

impl Plan {
    /// PyTorch's rules: without dimensions, as many of the last as there are sizes; -1 keeps a size.
    fn new(name: &str, x: &Tensor, sizes: Option<&[isize]>, dims: Option<&[isize]>) -> Result<Plan> {
        let rank = x.rank() as isize;
        let dims: Vec<isize> = match (dims, sizes) {
            (Some(dims), _) => {
                let mut found = Vec::with_capacity(dims.len());
                for &d in dims {
                    match x.wrap_dim(name, d)? as isize {
                        d if found.contains(&d) => {
                            return Err(Error::value(format!("{name}: FFT dims must be unique, but got dim={dims:?}")));
                        }
                        d => found.push(d),
                    }
                }
                found
            }
            (None, Some(sizes)) if sizes.len() as isize > rank => {
                return Err(Error::value(format!(
                    "{name}: Got shape with {} values but input tensor only has {rank} dimensions",
                    sizes.len()
                )));
            }
            (None, Some(sizes)) => (rank - sizes.len() as isize..rank).collect(),
            (None, None) => (0..rank).collect(),
        };
        if sizes.is_some_and(|sizes| sizes.len() != dims.len()) {
            return Err(Error::value(format!("{name}: When given, dim and shape arguments must have the same length")));
        }
        let size = |(i, &d): (usize, &isize)| match sizes.map(|sizes| sizes[i]) {
            None | Some(-1) => checked(name, x.size(d)?),
            Some(n) => checked(name, usize::try_from(n).unwrap_or(0)),
        };
        let sizes = dims.iter().enumerate().map(size).collect::<Result<_>>()?;
        Ok(Plan { dims, sizes })
    }

    /// The tensor with the plan's sizes, and its dimensions with their factors.
    fn sized(&self, x: &Tensor, inverse: bool, norm: FftNorm) -> Result<(Tensor, Vec<(usize, f64)>)> {
        let mut sized = x.clone();
        let mut dims = Vec::with_capacity(self.dims.len());
        for (&d, &n) in self.dims.iter().zip(&self.sizes) {
            sized = resized(&sized, d, n)?;
            dims.push((x.wrap_dim("fft", d)?, norm.scale(n, inverse)));
        }
        Ok((sized, dims))
    }

    /// Transforms of complex numbers along all dimensions. A `fresh` tensor is nobody else's.
    fn complex(&self, x: &Tensor, inverse: bool, norm: FftNorm, fresh: bool) -> Result<Tensor> {
        let (sized, dims) = self.sized(x, inverse, norm)?;
        complex_all(&sized, &dims, inverse, fresh && sized.shape() == x.shape())
    }

    /// The last dimension and its size apart from the others.
    fn split_last(mut self, name: &str) -> Result<(isize, usize, Plan)> {
        match (self.dims.pop(), self.sizes.pop()) {
            (Some(d), Some(n)) => Ok((d, n, self)),
            _ => Err(Error::value(format!("{name}: must transform at least one axis"))),
        }
    }
}

/// The size of a real signal: as given, or from the half that is there.
fn signal_size(name: &str, x: &Tensor, n: Option<usize>, dim: isize) -> Result<usize> {
    match n {
        Some(n) => checked(name, n),
        None => checked(name, 2 * x.size_along(name, dim)?.saturating_sub(1)),
    }
}

impl Tensor {
    fn transform(&self, name: &str, n: Option<usize>, dim: isize, norm: FftNorm, inverse: bool) -> Result<Tensor> {
        let x = promoted(name, self, true)?;
        let n = checked(name, n.map_or_else(|| x.size_along(name, dim), Ok)?)?;
        let dim = x.wrap_dim(name, dim)? as isize;
        complex_along(&resized(&x, dim, n)?, dim, inverse, norm.scale(n, inverse))
    }

    /// The discrete Fourier transform of `n` numbers along a dimension, cut off or continued with zeros.
    ///
    /// ```
    /// # use rushlight_tensor as rushlight;
    /// use rushlight::{FftNorm, Tensor};
    /// let x = Tensor::new([1.0, 0.0, -1.0, 0.0])?;
    /// let y = x.fft(None, -1, FftNorm::Backward)?;
    /// assert_eq!(y.real()?.to_vec::<f32>()?, [0.0, 2.0, 0.0, 2.0]);
    /// assert_eq!(y.ifft(None, -1, FftNorm::Backward)?.real()?.to_vec::<f32>()?, [1.0, 0.0, -1.0, 0.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn fft(&self, n: Option<usize>, dim: isize, norm: FftNorm) -> Result<Tensor> {
        self.transform("fft", n, dim, norm, false)
    }

    /// The inverse of [`Tensor::fft`].
    pub fn ifft(&self, n: Option<usize>, dim: isize, norm: FftNorm) -> Result<Tensor> {
        self.transform("ifft", n, dim, norm, true)
    }

    /// The first half of the transform of a real signal: the rest is its conjugate.
    pub fn rfft(&self, n: Option<usize>, dim: isize, norm: FftNorm) -> Result<Tensor> {
        needs_real("rfft", self)?;
        let x = promoted("rfft", self, false)?;
        let n = checked("rfft", n.map_or_else(|| x.size_along("rfft", dim), Ok)?)?;
        along(&resized(&x, dim, n)?, dim, |x| real_rows(x, norm.scale(n, false)))
    }

    /// The inverse of [`Tensor::rfft`]: a real signal of `n` numbers.
    pub fn irfft(&self, n: Option<usize>, dim: isize, norm: FftNorm) -> Result<Tensor> {
        let x = promoted("irfft", self, true)?;
        let n = signal_size("irfft", &x, n, dim)?;
        along(&resized(&x, dim, n / 2 + 1)?, dim, |x| hermitian_rows(x, n, norm.scale(n, true)))
    }

    /// The transform, which is real, of a signal whose second half is the conjugate of the first.
    pub fn hfft(&self, n: Option<usize>, dim: isize, norm: FftNorm) -> Result<Tensor> {
        let x = promoted("hfft", self, true)?;
        let n = signal_size("hfft", &x, n, dim)?;
        along(&resized(&x, dim, n / 2 + 1)?, dim, |x| hermitian_rows(&x.conj()?, n, norm.scale(n, false)))
    }

    /// The inverse of [`Tensor::hfft`].
    pub fn ihfft(&self, n: Option<usize>, dim: isize, norm: FftNorm) -> Result<Tensor> {
        needs_real("ihfft", self)?;
        let x = promoted("ihfft", self, false)?;
        let n = checked("ihfft", n.map_or_else(|| x.size_along("ihfft", dim), Ok)?)?;
        along(&resized(&x, dim, n)?, dim, |x| real_rows(x, norm.scale(n, true))?.conj())
    }

    /// [`Tensor::fft`] along several dimensions, all by default.
    pub fn fftn(&self, sizes: Option<&[isize]>, dims: Option<&[isize]>, norm: FftNorm) -> Result<Tensor> {
        let x = promoted("fftn", self, true)?;
        Plan::new("fftn", &x, sizes, dims)?.complex(&x, false, norm, false)
    }

    /// [`Tensor::ifft`] along several dimensions, all by default.
    pub fn ifftn(&self, sizes: Option<&[isize]>, dims: Option<&[isize]>, norm: FftNorm) -> Result<Tensor> {
        let x = promoted("ifftn", self, true)?;
        Plan::new("ifftn", &x, sizes, dims)?.complex(&x, true, norm, false)
    }

    /// The transform of a real signal along several dimensions; the last one is halved.
    pub fn rfftn(&self, sizes: Option<&[isize]>, dims: Option<&[isize]>, norm: FftNorm) -> Result<Tensor> {
        needs_real("rfftn", self)?;
        let x = promoted("rfftn", self, false)?;
        let plan = Plan::new("rfftn", &x, sizes, dims)?;
        let at_once = (2..=AT_ONCE).contains(&plan.dims.len()) && plan.dims.last() == Some(&(x.rank() as isize - 1));
        if at_once && !x.device().is_cpu() {
            let (sized, places) = plan.sized(&x, false, norm)?;
            if let Some(out) = real_all(&sized, &places)? {
                return Ok(out);
            }
        }
        let (last, n, rest) = plan.split_last("rfftn")?;
        let half = along(&resized(&x, last, n)?, last, |x| real_rows(x, norm.scale(n, false)))?;
        rest.complex(&half, false, norm, true)
    }

    /// The inverse of [`Tensor::rfftn`].
    pub fn irfftn(&self, sizes: Option<&[isize]>, dims: Option<&[isize]>, norm: FftNorm) -> Result<Tensor> {
        let x = promoted("irfftn", self, true)?;
        let (last, n, rest) = self.halved_plan("irfftn", sizes, dims)?;
        let half = rest.complex(&x, true, norm, false)?;
        along(&resized(&half, last, n / 2 + 1)?, last, |x| hermitian_rows(x, n, norm.scale(n, true)))
    }

    /// [`Tensor::hfft`] along the last of several dimensions, after [`Tensor::fftn`] along the others.
    pub fn hfftn(&self, sizes: Option<&[isize]>, dims: Option<&[isize]>, norm: FftNorm) -> Result<Tensor> {
        let x = promoted("hfftn", self, true)?;
        let (last, n, rest) = self.halved_plan("hfftn", sizes, dims)?;
        rest.complex(&x, false, norm, false)?.hfft(Some(n), last, norm)
    }

    /// The inverse of [`Tensor::hfftn`].
    pub fn ihfftn(&self, sizes: Option<&[isize]>, dims: Option<&[isize]>, norm: FftNorm) -> Result<Tensor> {
        needs_real("ihfftn", self)?;
        let (last, n, rest) = Plan::new("ihfftn", self, sizes, dims)?.split_last("ihfftn")?;
        rest.complex(&self.ihfft(Some(n), last, norm)?, true, norm, true)
    }

    /// The plan of a transform to a real signal: without a size, the last dimension has half of it.
    fn halved_plan(&self, name: &str, sizes: Option<&[isize]>, dims: Option<&[isize]>) -> Result<(isize, usize, Plan)> {
        let (last, mut n, rest) = Plan::new(name, self, sizes, dims)?.split_last(name)?;
        if sizes.and_then(<[isize]>::last).is_none_or(|&n| n == -1) {
            n = checked(name, 2 * (n - 1))?;
        }
        Ok((last, n, rest))
    }
}
