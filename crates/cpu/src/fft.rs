//! Discrete Fourier transforms of rows: Stockham's algorithm with radices 4, 2, 3, 5 and small primes, and Bluestein's
//! for sizes with larger prime factors.
//!
//! Rows are split into real and imaginary arrays, so that every pass is a loop over adjacent numbers.

use crate::complex::Part;
use crate::isa::Isa;
use crate::{multiversion, pool};
use rushlight_core::backend::Fft;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result, View};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::f64::consts::TAU;
use std::sync::{Arc, LazyLock, Mutex};

/// Prime factors up to this are passes of their own; a size with a larger one goes to Bluestein's algorithm.
const LARGEST_RADIX: usize = 13;
/// Numbers a task transforms at least.
const TASK: usize = 8 << 10;
/// Plans kept; a program that needs more sizes makes them again.
const MAX_PLANS: usize = 256;

/// See `call::Fft`.
pub fn fft(op: Fft, scale: f64, x: View, out: View) -> Result<()> {
    match out.dtype() {
        DType::F32 => run::<f32>(op, scale as f32, x, out),
        DType::F64 => run::<f64>(op, scale, x, out),
        other => Err(Error::dtype(format!("fft: not implemented for {other}"))),
    }
}

/// Rows, their length, and the numbers of an input and an output row.
fn sizes(op: Fft, x: View, out: View) -> Option<(usize, usize, usize, usize)> {
    let dense = [x, out].iter().all(|v| v.layout().is_contiguous() && v.dtype() == out.dtype());
    match (op, x.shape(), out.shape()) {
        _ if !dense => None,
        (Fft::Complex { .. }, &[rows, n, 2], shape) if shape == [rows, n, 2] => Some((rows, n, 2 * n, 2 * n)),
        (Fft::Real, &[rows, n], shape) if shape == [rows, n / 2 + 1, 2] => Some((rows, n, n, 2 * (n / 2 + 1))),
        (Fft::Hermitian, shape, &[rows, n]) if shape == [rows, n / 2 + 1, 2] => Some((rows, n, 2 * (n / 2 + 1), n)),
        _ => None,
    }
}

fn run<T: Part>(op: Fft, scale: T, x: View, out: View) -> Result<()> {
    let Some((rows, n, from, to)) = sizes(op, x, out) else {
        return Err(Error::shape(format!("fft: {op:?} does not take {:?} to {:?}", x.shape(), out.shape())));
    };
    if rows == 0 || n == 0 {
        return Ok(());
    }
    let plan = Plan::<T>::of(n);
    let (x, out) = (SendPtr::new(x.ptr().cast::<T>()), SendPtr::new(out.ptr().cast::<T>()));
    let grain = (TASK / n).max(1).max(rows.div_ceil(4 * pool::num_threads()).min(64));
    pool::parallel_ranges(rows, grain, |start, end| {
        let mut work = Work::new(plan.scratch());
        for row in start..end {
            // SAFETY: contiguous views of `rows` rows of these many numbers; tasks have rows of their own.
            let (x, y) = unsafe {
                (
                    std::slice::from_raw_parts(x.at(row * from), from),
                    std::slice::from_raw_parts_mut(out.at(row * to), to),
                )
            };
            // SAFETY: the buffers have the plan's size.
            unsafe { transform(op, &plan, &mut work, x, y, scale) };
        }
    });
    Ok(())
}

multiversion! {
    unsafe fn transform<T: Part>(op: Fft, plan: &Plan<T>, work: &mut Work<T>, x: &[T], y: &mut [T], scale: T) = row;
}

/// Two pairs of arrays that passes read and write in turn.
struct Work<T> {
    re: Vec<T>,
    im: Vec<T>,
    other_re: Vec<T>,
    other_im: Vec<T>,
}

impl<T: Part> Work<T> {
    fn new(n: usize) -> Self {
        let zeros = || vec![T::ZERO; n];
        Self { re: zeros(), im: zeros(), other_re: zeros(), other_im: zeros() }
    }
}

#[inline(always)]
unsafe fn row<T: Part, I: Isa>(op: Fft, plan: &Plan<T>, work: &mut Work<T>, x: &[T], y: &mut [T], scale: T) {
    let n = plan.n;
    let forward = !matches!(op, Fft::Complex { inverse: true } | Fft::Hermitian);
    match op {
        Fft::Complex { .. } => {
            for (i, pair) in x.chunks_exact(2).enumerate() {
                work.re[i] = pair[0];
                work.im[i] = pair[1];
            }
        }
        Fft::Real => {
            work.re[..n].copy_from_slice(x);
            work.im[..n].fill(T::ZERO);
        }
        Fft::Hermitian => {
            for (i, pair) in x.chunks_exact(2).enumerate() {
                // The parts that a real signal cannot have do not count.
                let alone = i == 0 || 2 * i == n;
                work.re[i] = pair[0];
                work.im[i] = if alone { T::ZERO } else { pair[1] };
                if !alone {
                    work.re[n - i] = pair[0];
                    work.im[n - i] = -pair[1];
                }
            }
        }
    }
    // An inverse transform is a forward one with the parts exchanged.
    if !forward {
        std::mem::swap(&mut work.re, &mut work.im);
    }
    plan.execute(work);
    if !forward {
        std::mem::swap(&mut work.re, &mut work.im);
    }
    match op {
        Fft::Hermitian => y.iter_mut().zip(&work.re).for_each(|(y, &re)| *y = re * scale),
        _ => {
            for (i, pair) in y.chunks_exact_mut(2).enumerate() {
                pair[0] = work.re[i] * scale;
                pair[1] = work.im[i] * scale;
            }
        }
    }
}

/// Everything that transforms of one size share.
struct Plan<T> {
    n: usize,
    kind: Kind<T>,
}

enum Kind<T> {
    Passes(Vec<Pass<T>>),
    Bluestein(Box<Bluestein<T>>),
}

/// One pass: `radix` rows of `m` blocks become blocks of `radix`.
struct Pass<T> {
    radix: usize,
    /// Powers of the root of unity, `[m][radix - 1]`: real and imaginary parts.
    twiddles: Vec<[T; 2]>,
    /// The roots of the radix itself.
    roots: Vec<[T; 2]>,
}

/// A transform as a convolution of a size that is a power of two.
struct Bluestein<T> {
    inner: Plan<T>,
    /// `exp(-i pi k^2 / n)`.
    chirp: Vec<[T; 2]>,
    /// The transform of the conjugate chirp, divided by the size.
    filter: Vec<[T; 2]>,
}

/// `exp(-2 pi i k / n)`.
fn root<T: Part>(k: usize, n: usize) -> [T; 2] {
    let angle = -TAU * (k % n) as f64 / n as f64;
    [T::from_f64(angle.cos()), T::from_f64(angle.sin())]
}

fn factors(mut n: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for radix in [4, 2, 3, 5, 7, 11, LARGEST_RADIX] {
        while n.is_multiple_of(radix) {
            found.push(radix);
            n /= radix;
        }
    }
    (n == 1).then_some(found)
}

type Plans = HashMap<(TypeId, usize), Arc<dyn Any + Send + Sync>>;
static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(Mutex::default);

impl<T: Part> Plan<T> {
    /// The plan of a size, made on its first use.
    fn of(n: usize) -> Arc<Self> {
        let key = (TypeId::of::<T>(), n);
        let lock = || PLANS.lock().unwrap_or_else(|e| e.into_inner());
        let known = lock().get(&key).cloned();
        if let Some(plan) = known.and_then(|plan| plan.downcast::<Self>().ok()) {
            return plan;
        }
        let plan = Arc::new(Self::new(n));
        let mut plans = lock();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key, plan.clone());
        plan
    }

    fn new(n: usize) -> Self {
        let kind = match factors(n) {
            Some(radices) => {
                let mut left = n;
                let pass = |radix: usize| {
                    let size = left;
                    left /= radix;
                    let twiddles = (0..left).flat_map(|p| (1..radix).map(move |k| root(p * k, size))).collect();
                    let roots = (0..radix * radix).map(|i| root((i / radix) * (i % radix), radix)).collect();
                    Pass { radix, twiddles, roots }
                };
                Kind::Passes(radices.into_iter().map(pass).collect())
            }
            None => Kind::Bluestein(Box::new(Bluestein::new(n))),
        };
        Self { n, kind }
    }

    /// The size of the work arrays.
    fn scratch(&self) -> usize {
        match &self.kind {
            Kind::Passes(_) => self.n,
            Kind::Bluestein(b) => b.inner.n,
        }
    }

    /// Transforms the first `n` numbers of `work.re` and `work.im` in place.
    #[inline(always)]
    fn execute(&self, work: &mut Work<T>) {
        match &self.kind {
            Kind::Passes(passes) => run_passes(self.n, passes, work),
            Kind::Bluestein(b) => b.execute(self.n, work),
        }
    }
}

#[inline(always)]
fn run_passes<T: Part>(n: usize, passes: &[Pass<T>], work: &mut Work<T>) {
    let (mut left, mut stride) = (n, 1);
    for pass in passes {
        let m = left / pass.radix;
        {
            let Work { re, im, other_re, other_im } = work;
            let (x, y) = ((&re[..n], &im[..n]), (&mut other_re[..n], &mut other_im[..n]));
            match pass.radix {
                2 => pass2(m, stride, &pass.twiddles, x, y),
                4 => pass4(m, stride, &pass.twiddles, x, y),
                _ => pass.any(m, stride, x, y),
            }
        }
        std::mem::swap(&mut work.re, &mut work.other_re);
        std::mem::swap(&mut work.im, &mut work.other_im);
        left = m;
        stride *= pass.radix;
    }
}

type Input<'a, T> = (&'a [T], &'a [T]);
type Output<'a, T> = (&'a mut [T], &'a mut [T]);

#[inline(always)]
fn pass2<T: Part>(m: usize, s: usize, twiddles: &[[T; 2]], (xr, xi): Input<T>, (yr, yi): Output<T>) {
    for p in 0..m {
        let [wr, wi] = twiddles[p];
        let (a, b) = (s * p..s * (p + 1), s * (p + m)..s * (p + m + 1));
        let (ar, ai, br, bi) = (&xr[a.clone()], &xi[a], &xr[b.clone()], &xi[b]);
        let (y0r, y1r) = yr[2 * s * p..2 * s * (p + 1)].split_at_mut(s);
        let (y0i, y1i) = yi[2 * s * p..2 * s * (p + 1)].split_at_mut(s);
        for q in 0..s {
            let (dr, di) = (ar[q] - br[q], ai[q] - bi[q]);
            y0r[q] = ar[q] + br[q];
            y0i[q] = ai[q] + bi[q];
            y1r[q] = dr * wr - di * wi;
            y1i[q] = dr * wi + di * wr;
        }
    }
}

#[inline(always)]
fn pass4<T: Part>(m: usize, s: usize, twiddles: &[[T; 2]], (xr, xi): Input<T>, (yr, yi): Output<T>) {
    for p in 0..m {
        let [w1, w2, w3] = [twiddles[3 * p], twiddles[3 * p + 1], twiddles[3 * p + 2]];
        let part = |k: usize| s * (p + m * k)..s * (p + m * k + 1);
        let [ar, br, cr, dr] = [&xr[part(0)], &xr[part(1)], &xr[part(2)], &xr[part(3)]];
        let [ai, bi, ci, di] = [&xi[part(0)], &xi[part(1)], &xi[part(2)], &xi[part(3)]];
        let (y01, y23) = yr[4 * s * p..4 * s * (p + 1)].split_at_mut(2 * s);
        let ((y0r, y1r), (y2r, y3r)) = (y01.split_at_mut(s), y23.split_at_mut(s));
        let (y01, y23) = yi[4 * s * p..4 * s * (p + 1)].split_at_mut(2 * s);
        let ((y0i, y1i), (y2i, y3i)) = (y01.split_at_mut(s), y23.split_at_mut(s));
        for q in 0..s {
            let (sum_r, sum_i) = (ar[q] + cr[q], ai[q] + ci[q]);
            let (gap_r, gap_i) = (ar[q] - cr[q], ai[q] - ci[q]);
            let (odd_r, odd_i) = (br[q] + dr[q], bi[q] + di[q]);
            // (b - d) times -i.
            let (turn_r, turn_i) = (bi[q] - di[q], dr[q] - br[q]);
            y0r[q] = sum_r + odd_r;
            y0i[q] = sum_i + odd_i;
            let (r, i) = (gap_r + turn_r, gap_i + turn_i);
            y1r[q] = r * w1[0] - i * w1[1];
            y1i[q] = r * w1[1] + i * w1[0];
            let (r, i) = (sum_r - odd_r, sum_i - odd_i);
            y2r[q] = r * w2[0] - i * w2[1];
            y2i[q] = r * w2[1] + i * w2[0];
            let (r, i) = (gap_r - turn_r, gap_i - turn_i);
            y3r[q] = r * w3[0] - i * w3[1];
            y3i[q] = r * w3[1] + i * w3[0];
        }
    }
}

impl<T: Part> Pass<T> {
    /// A pass of any radix, by its definition.
    #[inline(always)]
    fn any(&self, m: usize, s: usize, (xr, xi): Input<T>, (yr, yi): Output<T>) {
        let radix = self.radix;
        for p in 0..m {
            for k in 0..radix {
                let [wr, wi] = if k == 0 { [T::ONE, T::ZERO] } else { self.twiddles[p * (radix - 1) + k - 1] };
                let at = s * (radix * p + k)..s * (radix * p + k + 1);
                let (out_r, out_i) = (&mut yr[at.clone()], &mut yi[at]);
                out_r.copy_from_slice(&xr[s * p..s * (p + 1)]);
                out_i.copy_from_slice(&xi[s * p..s * (p + 1)]);
                for j in 1..radix {
                    let [c, d] = self.roots[j * radix + k];
                    let from = s * (p + m * j)..s * (p + m * j + 1);
                    let (in_r, in_i) = (&xr[from.clone()], &xi[from]);
                    for q in 0..s {
                        out_r[q] = out_r[q] + in_r[q] * c - in_i[q] * d;
                        out_i[q] = out_i[q] + in_r[q] * d + in_i[q] * c;
                    }
                }
                for q in 0..s {
                    let (r, i) = (out_r[q], out_i[q]);
                    out_r[q] = r * wr - i * wi;
                    out_i[q] = r * wi + i * wr;
                }
            }
        }
    }
}

impl<T: Part> Bluestein<T> {
    fn new(n: usize) -> Self {
        let size = (2 * n - 1).next_power_of_two();
        // k^2 modulo 2n, so that the angle stays exact.
        let chirp: Vec<[f64; 2]> =
            (0..n).map(|k| root((k as u128 * k as u128 % (2 * n as u128)) as usize, 2 * n)).collect();
        let inner64 = Plan::<f64>::new(size);
        let mut work = Work::<f64>::new(size);
        for (k, &[re, im]) in chirp.iter().enumerate() {
            for at in [k, (size - k) % size] {
                work.re[at] = re;
                work.im[at] = -im;
            }
        }
        inner64.execute(&mut work);
        let narrow = |[re, im]: [f64; 2]| [T::from_f64(re), T::from_f64(im)];
        let filter = (0..size).map(|i| narrow([work.re[i] / size as f64, work.im[i] / size as f64])).collect();
        Self { inner: Plan::new(size), chirp: chirp.into_iter().map(narrow).collect(), filter }
    }

    #[inline(always)]
    fn execute(&self, n: usize, work: &mut Work<T>) {
        let by_chirp = |work: &mut Work<T>| {
            for (i, &[c, d]) in self.chirp.iter().enumerate() {
                let (r, s) = (work.re[i], work.im[i]);
                work.re[i] = r * c - s * d;
                work.im[i] = r * d + s * c;
            }
        };
        by_chirp(work);
        work.re[n..].fill(T::ZERO);
        work.im[n..].fill(T::ZERO);
        self.inner.execute_passes(work);
        for (i, &[c, d]) in self.filter.iter().enumerate() {
            let (r, s) = (work.re[i], work.im[i]);
            work.re[i] = r * c - s * d;
            work.im[i] = r * d + s * c;
        }
        // The inverse: a forward transform with the parts exchanged.
        std::mem::swap(&mut work.re, &mut work.im);
        self.inner.execute_passes(work);
        std::mem::swap(&mut work.re, &mut work.im);
        by_chirp(work);
    }
}

impl<T: Part> Plan<T> {
    /// [`Plan::execute`] of a size that is a power of two.
    #[inline(always)]
    fn execute_passes(&self, work: &mut Work<T>) {
        if let Kind::Passes(passes) = &self.kind {
            run_passes(self.n, passes, work);
        }
    }
}
