//! Tiles: transforms of as many lines as a vector has lanes, and of a long line in two steps.

use super::passes::{Pair, Sink, Source, closes, first, last};
use super::plan::{Passes, Split};
use crate::simd::{Real, Simd, Vectors, prefetch};

/// Where complex numbers are.
pub(crate) trait Place<T>: Copy {
    /// The `count <= N` numbers from `at` on.
    ///
    /// # Safety
    /// They may be read; the CPU has the level.
    unsafe fn get<I: Vectors>(self, at: usize, count: usize) -> Pair<T::V<I>>
    where
        T: Real;
    /// Writes them.
    ///
    /// # Safety
    /// As for `get`.
    unsafe fn put<I: Vectors>(self, at: usize, count: usize, v: Pair<T::V<I>>)
    where
        T: Real;
    /// Prefetches `count` numbers, where it pays.
    #[inline(always)]
    fn ahead(self, _at: usize, _count: usize) {}
    /// Further on.
    ///
    /// # Safety
    /// Within the memory.
    unsafe fn add(self, n: usize) -> Self;
}

/// Real and imaginary parts side by side; exchanged, which makes a forward transform an inverse one.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<T> {
    pub at: *mut T,
    pub swap: bool,
}

/// Real and imaginary parts in arrays of their own.
#[derive(Clone, Copy)]
pub(super) struct Apart<T> {
    pub re: *mut T,
    pub im: *mut T,
}

/// Real numbers, whose imaginary parts are zero and are not written.
#[derive(Clone, Copy)]
pub(super) struct Reals<T> {
    pub at: *mut T,
}

impl<T: Real> Pairs<T> {
    #[inline(always)]
    fn turned<V: Simd>(self, v: Pair<V>) -> Pair<V> {
        if self.swap { Pair { re: v.im, im: v.re } } else { v }
    }
}

impl<T: Real> Place<T> for Pairs<T> {
    #[inline(always)]
    unsafe fn get<I: Vectors>(self, at: usize, count: usize) -> Pair<T::V<I>> {
        let n = T::V::<I>::N;
        // SAFETY: the caller's promise.
        let (re, im) = unsafe {
            let p = self.at.add(2 * at);
            if count == n {
                T::V::<I>::load(p).unzip(T::V::<I>::load(p.add(n)))
            } else {
                let (low, high) = ((2 * count).min(n), (2 * count).saturating_sub(n));
                T::V::<I>::get(p, low, T::ZERO).unzip(T::V::<I>::load_part(p.add(low), high, T::ZERO))
            }
        };
        self.turned(Pair { re, im })
    }

    #[inline(always)]
    unsafe fn put<I: Vectors>(self, at: usize, count: usize, v: Pair<T::V<I>>) {
        let n = T::V::<I>::N;
        let (a, b) = if self.swap { v.im.zip(v.re) } else { v.re.zip(v.im) };
        // SAFETY: the caller's promise.
        unsafe {
            let p = self.at.add(2 * at);
            if count == n {
                a.store(p);
                b.store(p.add(n));
            } else {
                let (low, high) = ((2 * count).min(n), (2 * count).saturating_sub(n));
                a.put(p, low);
                b.store_part(p.add(low), high);
            }
        }
    }

    #[inline(always)]
    fn ahead(self, at: usize, count: usize) {
        let p = self.at.wrapping_add(2 * at);
        for byte in (0..2 * count * size_of::<T>()).step_by(64) {
            prefetch(p.wrapping_byte_add(byte));
        }
    }

    #[inline(always)]
    unsafe fn add(self, n: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { at: unsafe { self.at.add(2 * n) }, swap: self.swap }
    }
}

impl<T: Real> Place<T> for Apart<T> {
    #[inline(always)]
    unsafe fn get<I: Vectors>(self, at: usize, count: usize) -> Pair<T::V<I>> {
        // SAFETY: the caller's promise.
        unsafe {
            Pair {
                re: T::V::<I>::get(self.re.add(at), count, T::ZERO),
                im: T::V::<I>::get(self.im.add(at), count, T::ZERO),
            }
        }
    }

    #[inline(always)]
    unsafe fn put<I: Vectors>(self, at: usize, count: usize, v: Pair<T::V<I>>) {
        // SAFETY: the caller's promise.
        unsafe {
            v.re.put(self.re.add(at), count);
            v.im.put(self.im.add(at), count);
        }
    }

    #[inline(always)]
    unsafe fn add(self, n: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self { re: self.re.add(n), im: self.im.add(n) } }
    }
}

impl<T: Real> Place<T> for Reals<T> {
    #[inline(always)]
    unsafe fn get<I: Vectors>(self, at: usize, count: usize) -> Pair<T::V<I>> {
        // SAFETY: the caller's promise.
        let re = unsafe { T::V::<I>::get(self.at.add(at), count, T::ZERO) };
        Pair { re, im: T::V::<I>::splat(T::ZERO) }
    }

    #[inline(always)]
    unsafe fn put<I: Vectors>(self, at: usize, count: usize, v: Pair<T::V<I>>) {
        // SAFETY: the caller's promise.
        unsafe { v.re.put(self.at.add(at), count) }
    }

    #[inline(always)]
    unsafe fn add(self, n: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { at: unsafe { self.at.add(n) } }
    }
}

/// Numbers of a tile of `n` elements, rounded up to whole squares.
pub(super) fn tile_size(n: usize, width: usize) -> usize {
    n.next_multiple_of(width) * 2 * width
}

/// Up to `N` lanes side by side; from element to element it is `step` numbers. What is written is scaled.
#[derive(Clone, Copy)]
pub(super) struct Columns<T, P> {
    pub place: P,
    pub step: usize,
    pub count: usize,
    pub scale: T,
    /// Distance from a written number to the prefetched one.
    pub ahead: usize,
}

impl<T: Real, I: Vectors, P: Place<T>> Source<T, I> for Columns<T, P> {
    #[inline(always)]
    unsafe fn get(&self, e: usize) -> Pair<T::V<I>> {
        let full = T::V::<I>::N;
        // SAFETY: the caller's promise. The number of lanes is known in the usual case.
        unsafe {
            let at = e * self.step;
            if self.count == full { self.place.get::<I>(at, full) } else { self.place.get::<I>(at, self.count) }
        }
    }
}

impl<T: Real, I: Vectors, P: Place<T>> Sink<T, I> for Columns<T, P> {
    #[inline(always)]
    unsafe fn put(&self, e: usize, v: Pair<T::V<I>>) {
        let full = T::V::<I>::N;
        let v = v.scaled(T::V::<I>::splat(self.scale));
        // SAFETY: as above.
        unsafe {
            let at = e * self.step;
            if self.count == full {
                self.place.put::<I>(at, full, v);
                self.place.ahead(at + self.ahead, full);
            } else {
                self.place.put::<I>(at, self.count, v);
            }
        }
    }
}

/// A block of the columns of a long line after their transforms, to be multiplied by the factors between both steps.
struct Turned<'a, T> {
    split: &'a Split<T>,
    block: usize,
    to: *mut T,
}

impl<T: Real, I: Vectors> Sink<T, I> for Turned<'_, T> {
    #[inline(always)]
    unsafe fn put(&self, k: usize, v: Pair<T::V<I>>) {
        let blocks = self.split.second.n.div_ceil(T::V::<I>::N);
        // SAFETY: the caller's promise; the tables are of the split's sizes.
        unsafe {
            let lanes = Pair::<T::V<I>>::load(self.split.lanes.as_ptr(), k);
            let factor = lanes.turn(self.split.blocks.get_unchecked(k * blocks + self.block));
            v.times(factor).store(self.to, k);
        }
    }
}

/// Reads a tile, unless the first pass does; the number of passes done.
#[inline(always)]
unsafe fn opened<T: Real, I: Vectors>(passes: &Passes<T>, from: &impl Source<T, I>, tile: *mut T) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        if first::<T, I>(passes, from, tile) {
            return 1;
        }
        for e in 0..passes.n {
            from.get(e).store(tile, e);
        }
    }
    0
}

/// The passes from `done` on, and the result to where it goes.
#[inline(always)]
unsafe fn finished<T: Real, I: Vectors>(
    passes: &Passes<T>,
    done: usize,
    tile: *mut T,
    other: *mut T,
    to: &impl Sink<T, I>,
) {
    let closes = closes(passes);
    let end = passes.list.len() - usize::from(closes);
    // SAFETY: the caller's promise.
    unsafe {
        let tile = super::passes_of::<T>(passes, done..end, tile, other, [std::ptr::null(); 2]);
        if closes {
            return last::<T, I>(passes, tile, to);
        }
        for e in 0..passes.n {
            to.put(e, Pair::load(tile, e));
        }
    }
}

/// Reads a tile: lane `l` of element `e` is at `l * step + e`. `square` is room for a tile of `N` elements.
#[inline(always)]
pub(super) unsafe fn load_rows<T: Real, I: Vectors>(
    from: Pairs<T>,
    step: usize,
    n: usize,
    count: usize,
    tile: *mut T,
    square: *mut T,
) {
    let width = T::V::<I>::N;
    // SAFETY: the caller's promise.
    unsafe {
        if count == width && n > 1 {
            // Whole runs of a row at a time: rows at distances of a power of two share a few sets of the cache.
            let whole = n - n % (width / 2);
            for e in (0..whole).step_by(width / 2) {
                let swap = [false, from.swap];
                T::V::<I>::transpose_pairs(from.at.add(2 * e), 2 * step, swap, tile.add(2 * width * e), width, None);
            }
            for e in (whole..n).step_by(2) {
                // The last pair of an odd number of elements has one again.
                let e = e.min(n - 2);
                let [a, b, c, d] = T::V::<I>::load_across(from.at.add(2 * e), 2 * step);
                let (low, high) = (Pair { re: a, im: b }, Pair { re: c, im: d });
                from.turned(low).store(tile, e);
                from.turned(high).store(tile, e + 1);
            }
            return;
        }
        for e in (0..n).step_by(width) {
            let here = width.min(n - e);
            for lane in 0..count {
                let at = lane * step + e;
                let v = if here == width { from.get::<I>(at, width) } else { from.get::<I>(at, here) };
                v.store(square, lane);
            }
            let to = tile.add(2 * width * e);
            T::V::<I>::transpose(square, 2 * width, to, 2 * width);
            T::V::<I>::transpose(square.add(width), 2 * width, to.add(width), 2 * width);
        }
    }
}

/// Writes one, times a factor.
#[inline(always)]
pub(super) unsafe fn store_rows<T: Real, I: Vectors>(
    tile: *const T,
    scale: T,
    to: Pairs<T>,
    step: usize,
    n: usize,
    count: usize,
    square: *mut T,
) {
    let (width, scale) = (T::V::<I>::N, T::V::<I>::splat(scale));
    // SAFETY: the caller's promise.
    unsafe {
        if count == width && n > 1 {
            let whole = n - n % (width / 2);
            for e in (0..whole).step_by(width / 2) {
                let (swap, at) = ([to.swap, false], to.at.add(2 * e));
                T::V::<I>::transpose_pairs(tile.add(2 * width * e), width, swap, at, 2 * step, Some(scale));
            }
            for e in (whole..n).step_by(2) {
                let e = e.min(n - 2);
                let low = to.turned(Pair::<T::V<I>>::load(tile, e).scaled(scale));
                let high = to.turned(Pair::<T::V<I>>::load(tile, e + 1).scaled(scale));
                T::V::<I>::store_across([low.re, low.im, high.re, high.im], to.at.add(2 * e), 2 * step);
            }
            return;
        }
        for e in (0..n).step_by(width) {
            let from = tile.add(2 * width * e);
            T::V::<I>::transpose(from, 2 * width, square, 2 * width);
            T::V::<I>::transpose(from.add(width), 2 * width, square.add(width), 2 * width);
            let here = width.min(n - e);
            for lane in 0..count {
                let v = Pair::<T::V<I>>::load(square, lane).scaled(scale);
                if here == width {
                    to.put::<I>(lane * step + e, width, v);
                } else {
                    to.put::<I>(lane * step + e, here, v);
                }
            }
        }
    }
}

/// Room for two tiles of `n` elements and a square.
pub(super) fn work_size(n: usize, width: usize) -> usize {
    2 * tile_size(n + 1, width) + tile_size(width, width)
}

/// Transforms columns.
///
/// # Safety
/// The places have them; `work` has `work_size(passes.n)`; the CPU has the level.
#[inline(always)]
pub(super) unsafe fn columns<T: Real, I: Vectors>(
    passes: &Passes<T>,
    from: &Columns<T, Pairs<T>>,
    to: &Columns<T, Pairs<T>>,
    work: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let other = work.add(tile_size(passes.n + 1, T::V::<I>::N));
        let done = opened::<T, I>(passes, from, work);
        finished::<T, I>(passes, done, work, other, to);
    }
}

/// Of a long line, the first step of a block of columns: transforms and factors, into the blocks of `middle`.
///
/// # Safety
/// As for `columns`; `middle` has `middle_size`.
#[inline(always)]
pub(super) unsafe fn first_step<T: Real, I: Vectors, P: Place<T>>(
    split: &Split<T>,
    block: usize,
    from: P,
    middle: *mut T,
    work: *mut T,
) {
    let width = T::V::<I>::N;
    let (a, b) = (split.first.n, split.second.n);
    // SAFETY: the caller's promise.
    unsafe {
        let other = work.add(tile_size(a + 1, width));
        let place = from.add(block * width);
        let from = Columns { place, step: b, count: width.min(b - block * width), scale: T::ZERO, ahead: 0 };
        let done = opened::<T, I>(&split.first, &from, work);
        let to = Turned { split, block, to: middle.add(block * tile_size(a, width)) };
        finished::<T, I>(&split.first, done, work, other, &to);
    }
}

/// The second step, of a block of rows of `middle`.
///
/// # Safety
/// As for `first_step`.
#[inline(always)]
pub(super) unsafe fn second_step<T: Real, I: Vectors, P: Place<T>>(
    split: &Split<T>,
    block: usize,
    middle: *const T,
    to: P,
    scale: T,
    work: *mut T,
) {
    let width = T::V::<I>::N;
    let (a, b) = (split.first.n, split.second.n);
    // SAFETY: the caller's promise.
    unsafe {
        let other = work.add(tile_size(b + 1, width));
        for part in 0..b.div_ceil(width) {
            let from = middle.add(part * tile_size(a, width) + block * width * 2 * width);
            let to = work.add(part * width * 2 * width);
            T::V::<I>::transpose(from, 2 * width, to, 2 * width);
            T::V::<I>::transpose(from.add(width), 2 * width, to.add(width), 2 * width);
        }
        let place = to.add(block * width);
        let to = Columns { place, step: a, count: width.min(a - block * width), scale, ahead: 0 };
        finished::<T, I>(&split.second, 0, work, other, &to);
    }
}

/// Room for what is between both steps.
pub(super) fn middle_size<T: Real>(split: &Split<T>, width: usize) -> usize {
    split.second.n.div_ceil(width) * tile_size(split.first.n, width)
}
