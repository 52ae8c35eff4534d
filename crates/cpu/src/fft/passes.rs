//! Passes over tiles, in place but for the last one, which puts the numbers in order.
//!
//! A tile holds a number of each of `N` transforms, the lanes of a vector, side by side: element `e` is a vector of
//! real parts at `2 N e` and one of imaginary parts behind it. Every pass of every radix then works on whole vectors.

use super::plan::{Pass, Passes};
use crate::simd::{Real, Simd, Vectors, prefetch};
use std::ops::{Add, Range, Sub};

/// A vector of complex numbers.
#[derive(Clone, Copy)]
pub(crate) struct Pair<V> {
    pub re: V,
    pub im: V,
}

impl<V: Simd> Add for Pair<V> {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self { re: self.re + b.re, im: self.im + b.im }
    }
}

impl<V: Simd> Sub for Pair<V> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self { re: self.re - b.re, im: self.im - b.im }
    }
}

impl<V: Simd> Pair<V> {
    #[inline(always)]
    pub(super) fn zero() -> Self {
        let zero = V::splat(V::Elem::ZERO);
        Self { re: zero, im: zero }
    }

    /// Element `e` of a tile.
    ///
    /// # Safety
    /// The tile has the element.
    #[inline(always)]
    pub(super) unsafe fn load(tile: *const V::Elem, e: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let at = tile.add(2 * V::N * e);
            Self { re: V::load(at), im: V::load(at.add(V::N)) }
        }
    }

    /// # Safety
    /// As for `load`.
    #[inline(always)]
    pub(super) unsafe fn store(self, tile: *mut V::Elem, e: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = tile.add(2 * V::N * e);
            self.re.store(at);
            self.im.store(at.add(V::N));
        }
    }

    /// The product with a number given as its real part, its imaginary part, and that with its sign changed.
    #[inline(always)]
    pub(super) fn turn(self, w: &[V::Elem; 3]) -> Self {
        let (re, im, minus) = (V::splat(w[0]), V::splat(w[1]), V::splat(w[2]));
        Self { re: self.re.fma(re, self.im * minus), im: self.re.fma(im, self.im * re) }
    }

    #[inline(always)]
    pub(crate) fn scaled(self, by: V) -> Self {
        Self { re: self.re * by, im: self.im * by }
    }

    #[inline(always)]
    pub(crate) fn times(self, w: Self) -> Self {
        let minus = V::splat(V::Elem::ZERO) - w.im;
        Self { re: self.re.fma(w.re, self.im * minus), im: self.re.fma(w.im, self.im * w.re) }
    }

    /// Times `-i`.
    #[inline(always)]
    fn quarter(self) -> Self {
        Self { re: self.im, im: V::splat(V::Elem::ZERO) - self.re }
    }
}

/// Some passes, of `passes.list`, over the tile at `from`: in place, but for the last of all, which puts the numbers in
/// order at `to`. Gives the tile that has the result. Each of the first two prefetches as many bytes as the tile has
/// from a place of `ahead`, unless it is null: evenly spread, as a core waits for a few lines at a time.
///
/// # Safety
/// Both have `passes.n` elements; the CPU has the level.
#[inline(always)]
pub(super) unsafe fn execute<T: Real, I: Vectors>(
    passes: &Passes<T>,
    range: Range<usize>,
    from: *mut T,
    to: *mut T,
    ahead: [*const T; 2],
) -> *mut T {
    let mut s: usize = passes.list[..range.start].iter().map(|pass| pass.radix).product();
    let is_last = range.end == passes.list.len() && !range.is_empty();
    let mut far = ahead.into_iter();
    for pass in &passes.list[range.start..range.end - usize::from(is_last)] {
        let far = far.next().unwrap_or(std::ptr::null());
        let m = passes.n / (s * pass.radix);
        // SAFETY: `radix * m * s` is the tile's size.
        unsafe {
            match pass.radix {
                2 => run::<T, I, 2>(pass, m, s, from, far),
                3 => run::<T, I, 3>(pass, m, s, from, far),
                4 => run::<T, I, 4>(pass, m, s, from, far),
                5 => run::<T, I, 5>(pass, m, s, from, far),
                6 => run::<T, I, 6>(pass, m, s, from, far),
                7 => run::<T, I, 7>(pass, m, s, from, far),
                8 => run::<T, I, 8>(pass, m, s, from, far),
                11 => run::<T, I, 11>(pass, m, s, from, far),
                _ => run::<T, I, 13>(pass, m, s, from, far),
            }
        }
        s *= pass.radix;
    }
    let far = far.next().unwrap_or(std::ptr::null());
    let Some(pass) = passes.list.last().filter(|_| is_last) else { return from };
    // SAFETY: the caller's promise.
    unsafe {
        match pass.radix {
            2 => close::<T, I, 2>(pass, &passes.blocks, from, &Tile(to), far),
            3 => close::<T, I, 3>(pass, &passes.blocks, from, &Tile(to), far),
            4 => close::<T, I, 4>(pass, &passes.blocks, from, &Tile(to), far),
            5 => close::<T, I, 5>(pass, &passes.blocks, from, &Tile(to), far),
            6 => close::<T, I, 6>(pass, &passes.blocks, from, &Tile(to), far),
            7 => close::<T, I, 7>(pass, &passes.blocks, from, &Tile(to), far),
            8 => close::<T, I, 8>(pass, &passes.blocks, from, &Tile(to), far),
            11 => close::<T, I, 11>(pass, &passes.blocks, from, &Tile(to), far),
            _ => close::<T, I, 13>(pass, &passes.blocks, from, &Tile(to), far),
        }
    }
    to
}

/// A tile as the place of a last pass's results.
struct Tile<T>(*mut T);

impl<T: Real, I: Vectors> Sink<T, I> for Tile<T> {
    #[inline(always)]
    unsafe fn put(&self, e: usize, v: Pair<T::V<I>>) {
        // SAFETY: the caller's promise.
        unsafe { v.store(self.0, e) }
    }
}

/// Where the elements of a first pass come from.
pub(super) trait Source<T: Real, I: Vectors> {
    /// Element `e`.
    ///
    /// # Safety
    /// There is one; the CPU has the level.
    unsafe fn get(&self, e: usize) -> Pair<T::V<I>>;
}

/// Where those of a last pass go.
pub(super) trait Sink<T: Real, I: Vectors> {
    /// # Safety
    /// As for `Source::get`.
    unsafe fn put(&self, e: usize, v: Pair<T::V<I>>);
}

/// The first pass straight from where the numbers are, for the radices in which most sizes begin; whether it was one.
///
/// # Safety
/// As for `execute`.
#[inline(always)]
pub(super) unsafe fn first<T: Real, I: Vectors>(passes: &Passes<T>, from: &impl Source<T, I>, to: *mut T) -> bool {
    let [pass, _, ..] = &passes.list[..] else { return false };
    let m = passes.n / pass.radix;
    // SAFETY: the caller's promise.
    unsafe {
        match pass.radix {
            4 => open::<T, I, 4>(pass, m, from, to),
            5 => open::<T, I, 5>(pass, m, from, to),
            6 => open::<T, I, 6>(pass, m, from, to),
            8 => open::<T, I, 8>(pass, m, from, to),
            _ => return false,
        }
    }
    true
}

/// The last pass straight to where the numbers go, likewise.
///
/// # Safety
/// As for `execute`.
#[inline(always)]
pub(super) unsafe fn last<T: Real, I: Vectors>(passes: &Passes<T>, from: *const T, to: &impl Sink<T, I>) {
    let Some(pass) = passes.list.last() else { return };
    let blocks = &passes.blocks[..];
    // SAFETY: the caller's promise.
    unsafe {
        match pass.radix {
            4 => close::<T, I, 4>(pass, blocks, from, to, std::ptr::null()),
            5 => close::<T, I, 5>(pass, blocks, from, to, std::ptr::null()),
            6 => close::<T, I, 6>(pass, blocks, from, to, std::ptr::null()),
            _ => close::<T, I, 8>(pass, blocks, from, to, std::ptr::null()),
        }
    }
}

/// Whether [`last`] has the radix of the last of several passes.
pub(super) fn closes<T>(passes: &Passes<T>) -> bool {
    matches!(&passes.list[..], [_, .., last] if matches!(last.radix, 4 | 5 | 6 | 8))
}

#[inline(always)]
unsafe fn open<T: Real, I: Vectors, const R: usize>(pass: &Pass<T>, m: usize, from: &impl Source<T, I>, y: *mut T) {
    // SAFETY: the caller's promise; there are `R - 1` factors for each block.
    unsafe {
        for p in 0..m {
            let factors = pass.twiddles.as_ptr().add(p * (R - 1));
            let mut v = [Pair::<T::V<I>>::zero(); R];
            for k in 0..R {
                v[k] = from.get(p + m * k);
            }
            butterfly::<T, I, R>(&mut v, &pass.roots);
            v[0].store(y, p);
            for k in 1..R {
                v[k].turn(&*factors.add(k - 1)).store(y, p + m * k);
            }
        }
    }
}

/// Prefetches, `size` bytes for an element, those of the `count` elements of step `i`, unless `at` is null.
#[inline(always)]
fn lines_ahead<T>(at: *const T, i: usize, count: usize, size: usize) {
    if !at.is_null() {
        for byte in (i * count * size..(i + 1) * count * size).step_by(64) {
            prefetch(at.wrapping_byte_add(byte));
        }
    }
}

/// The last pass: the numbers of a block become every `s`th of the result, from the block's place in order on.
#[inline(always)]
unsafe fn close<T: Real, I: Vectors, const R: usize>(
    pass: &Pass<T>,
    blocks: &[u32],
    x: *const T,
    to: &impl Sink<T, I>,
    far: *const T,
) {
    let s = blocks.len();
    // SAFETY: the caller's promise.
    unsafe {
        for (q, &block) in blocks.iter().enumerate() {
            let mut v = [Pair::<T::V<I>>::zero(); R];
            for k in 0..R {
                v[k] = Pair::load(x, block as usize + k);
            }
            lines_ahead(far, q, R, size_of::<Pair<T::V<I>>>());
            butterfly::<T, I, R>(&mut v, &pass.roots);
            for k in 0..R {
                to.put(q + s * k, v[k]);
            }
        }
    }
}

/// One pass in place, over `s` blocks of `R` times `m` elements.
#[inline(always)]
unsafe fn run<T: Real, I: Vectors, const R: usize>(pass: &Pass<T>, m: usize, s: usize, x: *mut T, far: *const T) {
    // SAFETY: the caller's promise; there are `R - 1` factors for each number of a block's part.
    unsafe {
        for p in 0..m {
            let factors = pass.twiddles.as_ptr().add(p * (R - 1));
            lines_ahead(far, p, s * R, size_of::<Pair<T::V<I>>>());
            for q in 0..s {
                let at = q * R * m + p;
                let mut v = [Pair::<T::V<I>>::zero(); R];
                for k in 0..R {
                    v[k] = Pair::load(x, at + m * k);
                }
                butterfly::<T, I, R>(&mut v, &pass.roots);
                v[0].store(x, at);
                for k in 1..R {
                    // The first factors are all one.
                    let v = if p == 0 { v[k] } else { v[k].turn(&*factors.add(k - 1)) };
                    v.store(x, at + m * k);
                }
            }
        }
    }
}

#[inline(always)]
fn butterfly<T: Real, I: Vectors, const R: usize>(v: &mut [Pair<T::V<I>>; R], roots: &[[T; 2]]) {
    match R {
        2 => (v[0], v[1]) = (v[0] + v[1], v[0] - v[1]),
        3 => [v[0], v[1], v[2]] = three([v[0], v[1], v[2]]),
        4 => [v[0], v[1], v[2], v[3]] = four([v[0], v[1], v[2], v[3]]),
        // Coprime factors need no factors between them (Good's order of the numbers).
        6 => {
            [v[0], v[4], v[2], v[3], v[1], v[5]] = {
                let [a, b, c] = three([v[0] + v[3], v[2] + v[5], v[4] + v[1]]);
                let [d, e, f] = three([v[0] - v[3], v[2] - v[5], v[4] - v[1]]);
                [a, b, c, d, e, f]
            }
        }
        8 => {
            let half = T::V::<I>::splat(T::lit(std::f64::consts::FRAC_1_SQRT_2));
            let [a, b, c, d] = four([v[0] + v[4], v[1] + v[5], v[2] + v[6], v[3] + v[7]]);
            let (p, q) = (v[1] - v[5], v[3] - v[7]);
            // Eighths of a turn: by -1/8 and by -3/8.
            let p = Pair { re: (p.re + p.im) * half, im: (p.im - p.re) * half };
            let q = Pair { re: (q.im - q.re) * half, im: (T::V::<I>::splat(T::ZERO) - q.re - q.im) * half };
            let [e, f, g, h] = four([v[0] - v[4], p, (v[2] - v[6]).quarter(), q]);
            [v[0], v[2], v[4], v[6]] = [a, b, c, d];
            [v[1], v[3], v[5], v[7]] = [e, f, g, h];
        }
        _ => odd::<T, I, R>(v, roots),
    }
}

#[inline(always)]
fn four<V: Simd>([a, b, c, d]: [Pair<V>; 4]) -> [Pair<V>; 4] {
    let (sum, gap, odd, turn) = (a + c, a - c, b + d, b - d);
    // (b - d) times -i is (im, -re).
    [
        sum + odd,
        Pair { re: gap.re + turn.im, im: gap.im - turn.re },
        sum - odd,
        Pair { re: gap.re - turn.im, im: gap.im + turn.re },
    ]
}

#[inline(always)]
fn three<V: Simd>([a, b, c]: [Pair<V>; 3]) -> [Pair<V>; 3] {
    let (half, sin) = (V::splat(V::Elem::lit(-0.5)), V::splat(V::Elem::lit(0.75f64.sqrt())));
    let (sum, gap) = (b + c, (b - c).scaled(sin));
    let u = Pair { re: sum.re.fma(half, a.re), im: sum.im.fma(half, a.im) };
    [a + sum, Pair { re: u.re + gap.im, im: u.im - gap.re }, Pair { re: u.re - gap.im, im: u.im + gap.re }]
}

/// An odd radix: numbers `j` and `R - j` have the same cosines, and sines of opposite sign.
#[inline(always)]
fn odd<T: Real, I: Vectors, const R: usize>(v: &mut [Pair<T::V<I>>; R], roots: &[[T; 2]]) {
    let half = R / 2;
    let first = v[0];
    for j in 1..=half {
        let (a, b) = (v[j], v[R - j]);
        (v[j], v[R - j]) = (a + b, a - b);
        v[0] = v[0] + v[j];
    }
    let mut out = *v;
    for k in 1..=half {
        let (mut u, mut w) = (first, Pair::zero());
        for j in 1..=half {
            let root = &roots[(k - 1) * half + j - 1];
            let (cos, sin) = (T::V::<I>::splat(root[0]), T::V::<I>::splat(root[1]));
            u = Pair { re: v[j].re.fma(cos, u.re), im: v[j].im.fma(cos, u.im) };
            w = Pair { re: v[R - j].re.fma(sin, w.re), im: v[R - j].im.fma(sin, w.im) };
        }
        out[k] = Pair { re: u.re + w.im, im: u.im - w.re };
        out[R - k] = Pair { re: u.re - w.im, im: u.im + w.re };
    }
    *v = out;
}
