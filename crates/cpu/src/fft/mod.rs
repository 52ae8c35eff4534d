//! Discrete Fourier transforms of lines: passes over tiles of as many lines as a vector has lanes (`tile`, `passes`).
//!
//! A long line is its own tile: of `n = a b` numbers, transforms of its `b` columns and then of its `a` rows, whose
//! lanes are neighbouring columns and rows. A real line is a complex one of half the size. Sizes with a large prime
//! factor are convolutions (Bluestein's algorithm).

mod passes;
mod plan;
mod real;
mod tile;

use crate::conv::Scratch;
use crate::isa;
use crate::simd::{Real, Simd, Vectors};
use crate::{multiversion, pool};
pub(crate) use passes::Pair;
use plan::{Bluestein, Kind, Passes, Plan, Split};
use real::{from_halves_kernel, halves, to_halves_kernel, whole};
use rushlight_core::backend::Fft;
use rushlight_core::sync::SendPtr;
use rushlight_core::{DType, Error, Result, View};
use std::ops::Range;
use std::sync::Arc;
use tile::{Apart, Columns, Reals, middle_size, tile_size, work_size};
pub(crate) use tile::{Pairs, Place};

/// Numbers a task transforms at least.
const TASK: usize = 8 << 10;

/// Maximum numbers of lines and columns that are prefetched.
const SHORT: usize = 128;
/// Lines are prefetched only if they and their results have more bytes than this.
const CACHE: usize = 3 << 18;

/// See `call::Fft`.
pub fn fft(op: Fft, scale: f64, x: View, out: View) -> Result<()> {
    match out.dtype() {
        DType::F32 => run::<f32>(op, scale as f32, x, out),
        DType::F64 => run::<f64>(op, scale, x, out),
        other => Err(Error::dtype(format!("fft: not implemented for {other}"))),
    }
}

/// The number of rows, their length, and how many lines lie side by side in a row, number by number.
fn sizes(op: Fft, x: View, out: View) -> Option<(usize, usize, usize)> {
    let dense = [x, out].iter().all(|v| v.layout().is_contiguous() && v.dtype() == out.dtype());
    match (op, x.shape(), out.shape()) {
        _ if !dense => None,
        (Fft::Complex { .. }, &[rows, n, 2], shape) if shape == [rows, n, 2] => Some((rows, n, 1)),
        (Fft::Complex { .. }, &[rows, n, side, 2], shape) if shape == [rows, n, side, 2] => Some((rows, n, side)),
        (Fft::Real, &[rows, n], shape) if shape == [rows, n / 2 + 1, 2] => Some((rows, n, 1)),
        (Fft::Hermitian, shape, &[rows, n]) if shape == [rows, n / 2 + 1, 2] => Some((rows, n, 1)),
        _ => None,
    }
}

fn run<T: Real>(op: Fft, scale: T, x: View, out: View) -> Result<()> {
    let Some((rows, n, side)) = sizes(op, x, out) else {
        return Err(Error::shape(format!("fft: {op:?} does not take {:?} to {:?}", x.shape(), out.shape())));
    };
    if rows * n * side == 0 {
        return Ok(());
    }
    // SAFETY: contiguous views of these sizes, which do not overlap unless they are the same.
    unsafe { transform(op, scale, rows, n, side, x.ptr().cast::<T>(), out.ptr().cast::<T>()) };
    Ok(())
}

/// The lanes of the level in use.
fn width<T: Real>() -> usize {
    match isa::level() {
        isa::Level::Portable => T::V::<isa::Portable>::N,
        #[cfg(target_arch = "x86_64")]
        isa::Level::Avx2 => T::V::<isa::Avx2>::N,
        #[cfg(target_arch = "x86_64")]
        isa::Level::Avx512 => T::V::<isa::Avx512>::N,
        #[cfg(target_arch = "aarch64")]
        _ => T::V::<isa::Neon>::N,
    }
}

unsafe fn transform<T: Real>(op: Fft, scale: T, rows: usize, n: usize, side: usize, x: *mut T, y: *mut T) {
    let width = width::<T>();
    let plan = Plan::<T>::of(n, width);
    let half = n / 2 + 1;
    // SAFETY: the caller's promise, passed on.
    unsafe {
        match op {
            Fft::Complex { inverse } if side == 1 => {
                Lines { plan, rows, x, y, from: 2 * n, to: 2 * n, swap: inverse, scale, real: None, is_odd: false }
                    .run(width);
            }
            Fft::Complex { inverse } => sides(&plan, rows, side, x, y, inverse, scale, width),
            _ => {
                let real = op == Fft::Real;
                let (from, to) = if real { (n, 2 * half) } else { (2 * half, n) };
                let halves = n.is_multiple_of(2).then(|| Plan::<T>::of(n / 2, width));
                match halves {
                    Some(halves) => {
                        let real = Some(RealTable::new(n, real));
                        Lines {
                            plan: halves,
                            rows,
                            x,
                            y,
                            from,
                            to,
                            swap: !real.as_ref().is_some_and(|r| r.forward),
                            scale,
                            real,
                            is_odd: false,
                        }
                        .run(width);
                    }
                    None if real && matches!(plan.kind, Kind::Bluestein(_)) => {
                        Lines { plan, rows, x, y, from, to, swap: false, scale, real: None, is_odd: true }.run(width);
                    }
                    None => widened(&plan, real, rows, x, y, scale, width),
                }
            }
        }
    }
}

/// Transforms of a signal of even size from one of half of it.
struct RealTable<T> {
    forward: bool,
    /// `exp(-2 pi i k / n)`: real parts, then imaginary ones.
    roots: Arc<Vec<T>>,
}

/// Lines one behind the other.
struct Lines<T> {
    plan: Arc<Plan<T>>,
    rows: usize,
    x: *mut T,
    y: *mut T,
    /// From line to line, in numbers of `T`.
    from: usize,
    to: usize,
    /// Exchanges real and imaginary parts: an inverse transform.
    swap: bool,
    scale: T,
    real: Option<RealTable<T>>,
    /// Real lines of an odd size with a large prime factor, of which half of the transform is wanted.
    is_odd: bool,
}

// SAFETY: lines are read and written by one task each.
unsafe impl<T: Sync> Sync for Lines<T> {}

impl<T: Real> RealTable<T> {
    fn new(n: usize, forward: bool) -> Self {
        Self { forward, roots: plan::halves(n) }
    }
}

impl<T: Real> Lines<T> {
    /// What passes over the tile of these lines prefetch: where its lines go, and the lines behind them, unless the
    /// caches of a core have them. Tiles of short lines are not read in order, so that the processor does not see in
    /// time what comes next.
    fn ahead(&self, row: usize, width: usize) -> [*const T; 2] {
        let bytes = self.rows * (self.from + self.to) * size_of::<T>();
        if self.plan.n > SHORT || bytes <= CACHE || self.x == self.y {
            return [std::ptr::null(); 2];
        }
        let (y, x) = (self.y.wrapping_add(row * self.to), self.x.wrapping_add((row + width) * self.from));
        [y.cast_const(), x.cast_const()]
    }

    unsafe fn run(&self, width: usize) {
        let n = self.plan.n;
        let threads = pool::num_threads();
        let split = self.plan.split(self.rows, width);
        if let Some(split) = split.filter(|_| self.rows < threads && n > TASK) {
            let mut room = Room::new(self, split, width);
            for row in 0..self.rows {
                // SAFETY: the caller's promise.
                unsafe { self.line(split, row, width, &mut room, true) };
            }
            return;
        }
        let grain = (TASK / n).max(1).max(self.rows.div_ceil(4 * threads).min(64));
        let grain = if split.is_some() { grain } else { grain.next_multiple_of(width) };
        pool::parallel_ranges(self.rows, grain, |start, end| {
            // SAFETY: the caller's promise; ranges are disjoint.
            unsafe {
                match (&self.plan.kind, split) {
                    (Kind::Bluestein(b), _) => self.convolutions(b, start, end, width),
                    (_, Some(split)) => {
                        let mut room = Room::new(self, split, width);
                        (start..end).for_each(|row| self.line(split, row, width, &mut room, false));
                    }
                    (_, None) => {
                        let Some(passes) = self.plan.whole() else { return };
                        let mut work = Scratch::new::<T>(work_size(n, width));
                        for row in (start..end).step_by(width) {
                            group::<T>(self, passes, row, width.min(end - row), work.ptr());
                        }
                    }
                }
            }
        });
    }

    /// One long line in two steps, their blocks over the pool if `parallel`.
    unsafe fn line(&self, split: &Split<T>, row: usize, width: usize, room: &mut Room, parallel: bool) {
        let (n, swap) = (self.plan.n, self.swap);
        let (blocks, rows) = (split.second.n.div_ceil(width), split.first.n.div_ceil(width));
        let forward = self.real.as_ref().map(|real| real.forward);
        // SAFETY: the caller's promise.
        unsafe {
            let at = |p: *mut T| SendPtr::new(p);
            let (x, y) = (at(self.x.add(row * self.from)), at(self.y.add(row * self.to)));
            let (middle, work) = (at(room.middle.ptr()), at(room.work.ptr()));
            let (re, im) = (at(room.parts.ptr()), at(room.parts.ptr::<T>().add(n)));
            // Each task of the pool has its own tiles.
            let first_blocks = |start: usize, end: usize, work: *mut T| match forward {
                Some(false) => {
                    let from = Apart { re: im.at(0), im: re.at(0) };
                    first_parts::<T>(split, start, end, from, middle.at(0), work);
                }
                _ => first::<T>(split, start, end, Pairs { at: x.at(0), swap }, middle.at(0), work),
            };
            let second_blocks = |start: usize, end: usize, work: *mut T| match forward {
                Some(true) => {
                    let to = Apart { re: re.at(0), im: im.at(0) };
                    second_parts::<T>(split, start, end, middle.at(0), to, T::lit(1.0), work);
                }
                _ => second::<T>(split, start, end, middle.at(0), Pairs { at: y.at(0), swap }, self.scale, work),
            };
            if let Some(real) = self.real.as_ref().filter(|real| !real.forward) {
                from_halves::<T>(n, x.at(0), &real.roots, re.at(0), im.at(0));
            }
            if parallel {
                let size = work_size(split.first.n.max(split.second.n), width);
                let threads = 2 * pool::num_threads();
                pool::parallel_ranges(blocks, blocks.div_ceil(threads), |start, end| {
                    first_blocks(start, end, Scratch::new::<T>(size).ptr());
                });
                pool::parallel_ranges(rows, rows.div_ceil(threads), |start, end| {
                    second_blocks(start, end, Scratch::new::<T>(size).ptr());
                });
            } else {
                first_blocks(0, blocks, work.at(0));
                second_blocks(0, rows, work.at(0));
            }
            if let Some(real) = self.real.as_ref().filter(|real| real.forward) {
                to_halves::<T>(n, re.at(0), im.at(0), &real.roots, y.at(0), self.scale);
            }
        }
    }

    /// Lines whose size has a large prime factor.
    unsafe fn convolutions(&self, b: &Bluestein<T>, start: usize, end: usize, width: usize) {
        let (n, size) = (self.plan.n, b.inner.n);
        let (mut first, mut second) = (Scratch::new::<T>(2 * size * width), Scratch::new::<T>(2 * size * width));
        let (first, second) = (first.ptr::<T>(), second.ptr::<T>());
        let lines = |rows: usize, x: *mut T, y: *mut T, swap: bool| Lines {
            plan: b.inner.clone(),
            rows,
            x,
            y,
            from: 2 * size,
            to: 2 * size,
            swap,
            scale: T::lit(1.0),
            real: None,
            is_odd: false,
        };
        // A real line's parts between the transform of half of its size and its numbers.
        let mut parts = Scratch::new::<T>(if self.real.is_some() { 2 * n } else { 0 });
        let (re, im) = (parts.ptr::<T>(), parts.ptr::<T>().wrapping_add(n));
        let (one, chirp) = (T::lit(1.0), &b.chirp[..]);
        let pairs = |at: *mut T, swap: bool| Pairs { at, swap };
        // SAFETY: the caller's promise; the scratch has `width` lines of the inner size.
        unsafe {
            for row in (start..end).step_by(width) {
                let count = width.min(end - row);
                for i in 0..count {
                    let (x, to) = (self.x.add((row + i) * self.from), pairs(first.add(2 * size * i), false));
                    match &self.real {
                        Some(real) if !real.forward => {
                            from_halves::<T>(n, x, &real.roots, re, im);
                            products::<T, Apart<T>, Pairs<T>>(n, Apart { re: im, im: re }, chirp, to, one);
                        }
                        Some(_) => products::<T, Pairs<T>, Pairs<T>>(n, pairs(x, false), chirp, to, one),
                        None if self.is_odd => products::<T, Reals<T>, Pairs<T>>(n, Reals { at: x }, chirp, to, one),
                        None => products::<T, Pairs<T>, Pairs<T>>(n, pairs(x, self.swap), chirp, to, one),
                    }
                    std::slice::from_raw_parts_mut(to.at.add(2 * n), 2 * (size - n)).fill(T::ZERO);
                }
                lines(count, first, second, false).run(width);
                for i in 0..count {
                    let at = pairs(second.add(2 * size * i), false);
                    products::<T, Pairs<T>, Pairs<T>>(size, at, &b.filter, at, one);
                }
                lines(count, second, first, true).run(width);
                for i in 0..count {
                    let (from, y) = (pairs(first.add(2 * size * i), false), self.y.add((row + i) * self.to));
                    match &self.real {
                        Some(real) if real.forward => {
                            products::<T, Pairs<T>, Apart<T>>(n, from, chirp, Apart { re, im }, one);
                            to_halves::<T>(n, re, im, &real.roots, y, self.scale);
                        }
                        _ => {
                            let wanted = if self.is_odd { n / 2 + 1 } else { n };
                            products::<T, Pairs<T>, Pairs<T>>(wanted, from, chirp, pairs(y, self.swap), self.scale);
                        }
                    }
                }
            }
        }
    }
}

/// Memory for long lines.
struct Room {
    /// What is between both steps.
    middle: Scratch,
    /// Real and imaginary parts of a real line's pairs.
    parts: Scratch,
    work: Scratch,
}

impl Room {
    fn new<T: Real>(lines: &Lines<T>, split: &Split<T>, width: usize) -> Self {
        Self {
            middle: Scratch::new::<T>(middle_size(split, width)),
            parts: Scratch::new::<T>(if lines.real.is_some() { 2 * lines.plan.n } else { 0 }),
            work: Scratch::new::<T>(work_size(split.first.n.max(split.second.n), width)),
        }
    }
}

/// Transforms of lines whose numbers are `side` apart.
///
/// # Safety
/// `x` and `y` have `rows * plan.n * side` complex numbers each, as pairs.
unsafe fn sides<T: Real>(
    plan: &Arc<Plan<T>>,
    rows: usize,
    side: usize,
    x: *mut T,
    y: *mut T,
    swap: bool,
    scale: T,
    width: usize,
) {
    let n = plan.n;
    let (x, y) = (SendPtr::new(x), SendPtr::new(y));
    let Some(passes) = plan.whole() else {
        // Line by line, through rows of their own.
        pool::parallel_ranges(rows * side, width, |start, end| {
            let (mut from, mut to) = (Scratch::new::<[T; 2]>(n * width), Scratch::new::<[T; 2]>(n * width));
            let (from, to) = (from.ptr::<[T; 2]>(), to.ptr::<[T; 2]>());
            let place = |line: usize, e: usize| (line / side * n + e) * side + line % side;
            // SAFETY: the caller's promise; lines are disjoint.
            unsafe {
                for line in start..end {
                    for e in 0..n {
                        *from.add((line - start) * n + e) = *x.at(2 * place(line, e)).cast::<[T; 2]>();
                    }
                }
                let (plan, rows) = (plan.clone(), end - start);
                let (from, to) = (from.cast::<T>(), to.cast::<T>());
                Lines { plan, rows, x: from, y: to, from: 2 * n, to: 2 * n, swap, scale, real: None, is_odd: false }
                    .run(width);
                for line in start..end {
                    for e in 0..n {
                        *y.at(2 * place(line, e)).cast::<[T; 2]>() = *to.cast::<[T; 2]>().add((line - start) * n + e);
                    }
                }
            }
        });
        return;
    };
    let blocks = side.div_ceil(width);
    let is_far = n <= SHORT && rows * n * side * 2 * size_of::<T>() > CACHE;
    let grain = (TASK / (n * width)).max(1).max((rows * blocks).div_ceil(4 * pool::num_threads()).min(64));
    pool::parallel_ranges(rows * blocks, grain, |start, end| {
        let mut work = Scratch::new::<T>(work_size(n, width));
        for i in start..end {
            let (row, block) = (i / blocks, i % blocks * width);
            let at = 2 * (row * n * side + block);
            // SAFETY: the caller's promise; blocks are disjoint.
            unsafe {
                let place = |at: *mut T| Columns {
                    place: Pairs { at, swap },
                    step: side,
                    count: width.min(side - block),
                    scale,
                    ahead: if is_far && block + width < side { width } else { 0 },
                };
                columns::<T>(passes, &place(x.at(at)), &place(y.at(at)), work.ptr());
            }
        }
    });
}

/// Real lines, or to real ones, of an odd size or one with a large prime factor, as complex ones.
unsafe fn widened<T: Real>(plan: &Arc<Plan<T>>, real: bool, rows: usize, x: *mut T, y: *mut T, scale: T, width: usize) {
    let n = plan.n;
    let half = n / 2 + 1;
    let (x, y) = (SendPtr::new(x), SendPtr::new(y));
    let group = (TASK / n).max(width);
    pool::parallel_ranges(rows, group, |start, end| {
        let rows = end - start;
        let (mut from, mut to) = (Scratch::new::<[T; 2]>(n * rows), Scratch::new::<[T; 2]>(n * rows));
        let (from, to) = (from.ptr::<[T; 2]>(), to.ptr::<[T; 2]>());
        // SAFETY: the caller's promise; rows are disjoint.
        unsafe {
            for row in 0..rows {
                let wide = std::slice::from_raw_parts_mut(from.add(row * n), n);
                if real {
                    let x = std::slice::from_raw_parts(x.at((start + row) * n), n);
                    wide.iter_mut().zip(x).for_each(|(wide, &x)| *wide = [x, T::ZERO]);
                } else {
                    let x = std::slice::from_raw_parts(x.at((start + row) * 2 * half).cast::<[T; 2]>(), half);
                    for (i, &[re, im]) in x.iter().enumerate() {
                        // The parts that a real signal cannot have do not count.
                        let alone = i == 0 || 2 * i == n;
                        wide[i] = [re, if alone { T::ZERO } else { im }];
                        if !alone {
                            wide[n - i] = [re, T::ZERO - im];
                        }
                    }
                }
            }
            let (plan, x, z) = (plan.clone(), from.cast::<T>(), to.cast::<T>());
            Lines { plan, rows, x, y: z, from: 2 * n, to: 2 * n, swap: !real, scale, real: None, is_odd: false }
                .run(width);
            for row in 0..rows {
                let wide = std::slice::from_raw_parts(to.add(row * n), n);
                if real {
                    let y = std::slice::from_raw_parts_mut(y.at((start + row) * 2 * half).cast::<[T; 2]>(), half);
                    y.copy_from_slice(&wide[..half]);
                } else {
                    let y = std::slice::from_raw_parts_mut(y.at((start + row) * n), n);
                    y.iter_mut().zip(wide).for_each(|(y, wide)| *y = wide[0]);
                }
            }
        }
    });
}

/// The transform of complex numbers, for tables.
fn transformed(mut x: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let mut y = vec![[0.0; 2]; x.len()];
    let (from, to) = (x.as_mut_ptr().cast::<f64>(), y.as_mut_ptr().cast::<f64>());
    // SAFETY: one line of this size at both.
    unsafe { transform(Fft::Complex { inverse: false }, 1.0, 1, x.len(), 1, from, to) };
    y
}

multiversion! {
    unsafe fn columns<T: Real>(passes: &Passes<T>, from: &Columns<T, Pairs<T>>, to: &Columns<T, Pairs<T>>, work: *mut T) = columns_kernel;
}
multiversion! {
    unsafe fn first<T: Real>(split: &Split<T>, start: usize, end: usize, from: Pairs<T>, middle: *mut T, work: *mut T) = first_kernel;
}
multiversion! {
    unsafe fn first_parts<T: Real>(split: &Split<T>, start: usize, end: usize, from: Apart<T>, middle: *mut T, work: *mut T) = first_parts_kernel;
}
multiversion! {
    unsafe fn second<T: Real>(split: &Split<T>, start: usize, end: usize, middle: *const T, to: Pairs<T>, scale: T, work: *mut T) = second_kernel;
}
multiversion! {
    unsafe fn second_parts<T: Real>(split: &Split<T>, start: usize, end: usize, middle: *const T, to: Apart<T>, scale: T, work: *mut T) = second_parts_kernel;
}
multiversion! {
    unsafe fn group<T: Real>(lines: &Lines<T>, passes: &Passes<T>, row: usize, count: usize, work: *mut T) = group_kernel;
}
multiversion! {
    unsafe fn to_halves<T: Real>(n: usize, re: *const T, im: *const T, roots: &[T], y: *mut T, scale: T) = to_halves_kernel;
}
multiversion! {
    unsafe fn from_halves<T: Real>(n: usize, x: *const T, roots: &[T], re: *mut T, im: *mut T) = from_halves_kernel;
}
multiversion! {
    unsafe fn products<T: Real, P: Place<T>, Q: Place<T>>(n: usize, from: P, by: &[[T; 2]], to: Q, scale: T) = products_kernel;
}

#[inline(always)]
unsafe fn columns_kernel<T: Real, I: Vectors>(
    passes: &Passes<T>,
    from: &Columns<T, Pairs<T>>,
    to: &Columns<T, Pairs<T>>,
    work: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe { tile::columns::<T, I>(passes, from, to, work) }
}

#[inline(always)]
unsafe fn first_kernel<T: Real, I: Vectors>(
    split: &Split<T>,
    start: usize,
    end: usize,
    from: Pairs<T>,
    middle: *mut T,
    work: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for block in start..end {
            tile::first_step::<T, I, _>(split, block, from, middle, work);
        }
    }
}

#[inline(always)]
unsafe fn first_parts_kernel<T: Real, I: Vectors>(
    split: &Split<T>,
    start: usize,
    end: usize,
    from: Apart<T>,
    middle: *mut T,
    work: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for block in start..end {
            tile::first_step::<T, I, _>(split, block, from, middle, work);
        }
    }
}

#[inline(always)]
unsafe fn second_kernel<T: Real, I: Vectors>(
    split: &Split<T>,
    start: usize,
    end: usize,
    middle: *const T,
    to: Pairs<T>,
    scale: T,
    work: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for block in start..end {
            tile::second_step::<T, I, _>(split, block, middle, to, scale, work);
        }
    }
}

#[inline(always)]
unsafe fn second_parts_kernel<T: Real, I: Vectors>(
    split: &Split<T>,
    start: usize,
    end: usize,
    middle: *const T,
    to: Apart<T>,
    scale: T,
    work: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for block in start..end {
            tile::second_step::<T, I, _>(split, block, middle, to, scale, work);
        }
    }
}

/// A tile of whole lines; with a real table, the passes are of half their size.
#[inline(always)]
unsafe fn group_kernel<T: Real, I: Vectors>(
    lines: &Lines<T>,
    passes: &Passes<T>,
    row: usize,
    count: usize,
    work: *mut T,
) {
    let (n, width) = (passes.n, T::V::<I>::N);
    // SAFETY: the caller's promise; there is room for two tiles of `n + 1` and a square.
    unsafe {
        let (mut a, mut b) = (work, work.add(tile_size(n + 1, width)));
        let square = b.add(tile_size(n + 1, width));
        let (x, y) = (lines.x.add(row * lines.from), lines.y.add(row * lines.to));
        let plain = |at: *mut T| Pairs { at, swap: false };
        let pairs = |at: *mut T| Pairs { at, swap: lines.swap };
        // Steps in complex numbers; a real line of even size is half as many pairs.
        let (from, to) = (lines.from / 2, lines.to / 2);
        let all = 0..passes.list.len();
        match &lines.real {
            None => {
                tile::load_rows::<T, I>(pairs(x), from, n, count, a, square);
                let done = passes_of::<T>(passes, all.clone(), a, b, lines.ahead(row, width));
                tile::store_rows::<T, I>(done, lines.scale, pairs(y), to, n, count, square);
            }
            Some(real) if real.forward => {
                tile::load_rows::<T, I>(plain(x), from, n, count, a, square);
                if passes_of::<T>(passes, all.clone(), a, b, lines.ahead(row, width)) == b {
                    std::mem::swap(&mut a, &mut b);
                }
                for k in 0..=n / 2 {
                    let other = if k == 0 { 0 } else { n - k };
                    let (z, w) = (Pair::<T::V<I>>::load(a, k), Pair::<T::V<I>>::load(a, other));
                    let [low, high] = halves(z, w, real.roots[k], real.roots[n + 1 + k]);
                    low.store(b, k);
                    high.store(b, n - k);
                }
                tile::store_rows::<T, I>(b, lines.scale, plain(y), to, n + 1, count, square);
            }
            Some(real) => {
                tile::load_rows::<T, I>(plain(x), from, n + 1, count, a, square);
                // The first one's other half goes behind the tile, where there is room.
                for k in 0..=n / 2 {
                    let (mut z, mut w) = (Pair::<T::V<I>>::load(a, k), Pair::<T::V<I>>::load(a, n - k));
                    if k == 0 {
                        (z.im, w.im) = (T::V::<I>::splat(T::ZERO), T::V::<I>::splat(T::ZERO));
                    }
                    let [low, high] = whole(z, w, real.roots[k], real.roots[n + 1 + k]);
                    Pair { re: low.im, im: low.re }.store(b, k);
                    Pair { re: high.im, im: high.re }.store(b, n - k);
                }
                let done = passes_of::<T>(passes, all.clone(), b, a, lines.ahead(row, width));
                tile::store_rows::<T, I>(done, lines.scale, pairs(y), to, n, count, square);
            }
        }
    }
}

multiversion! {
    /// See `passes::execute`; a function of its own, so that its loops are compiled once.
    unsafe fn passes_of<T: Real>(passes: &Passes<T>, range: Range<usize>, from: *mut T, to: *mut T, ahead: [*const T; 2]) -> *mut T = passes_kernel;
}

#[inline(always)]
unsafe fn passes_kernel<T: Real, I: Vectors>(
    passes: &Passes<T>,
    range: Range<usize>,
    from: *mut T,
    to: *mut T,
    ahead: [*const T; 2],
) -> *mut T {
    // SAFETY: the caller's promise.
    unsafe { passes::execute::<T, I>(passes, range, from, to, ahead) }
}

/// Products with pairs; both sides may be the same memory.
#[inline(always)]
unsafe fn products_kernel<T: Real, P: Place<T>, Q: Place<T>, I: Vectors>(
    n: usize,
    from: P,
    by: &[[T; 2]],
    to: Q,
    scale: T,
) {
    let width = T::V::<I>::N;
    let scale = T::V::<I>::splat(scale);
    let by = Pairs { at: by.as_ptr().cast_mut().cast::<T>(), swap: false };
    // SAFETY: `n` numbers at all.
    unsafe {
        for at in (0..n).step_by(width) {
            let count = width.min(n - at);
            let v = from.get::<I>(at, count).times(by.get::<I>(at, count));
            to.put::<I>(at, count, v.scaled(scale));
        }
    }
}
