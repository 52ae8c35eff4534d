//! Sorting, the largest or smallest few, and binary search.
//!
//! A line is sorted as packed integers: an order-preserving image of the element above its position. Packed items are all different,
//! so any sort of them is stable; NaN maps to the largest image and both zeros to the same.

use crate::pool;
use crate::reduce::item::{Item, with_item};
use crate::reduce::plan;
use half::{bf16, f16};
use rushlight_core::{DType, Error, Result, View};

/// An element with an order-preserving image of at most `IMAGE_BITS` bits.
trait Sortable: Item {
    const IMAGE_BITS: u32;
    fn image(self) -> u64;
}

macro_rules! sortable_int {
    ($($t:ty as $u:ty;)*) => {$(
        impl Sortable for $t {
            const IMAGE_BITS: u32 = <$t>::BITS;
            #[inline(always)]
            fn image(self) -> u64 {
                // Moves the least value to zero.
                (self.wrapping_sub(<$t>::MIN)) as $u as u64
            }
        }
    )*};
}
sortable_int! { u8 as u8; i8 as u8; i16 as u16; i32 as u32; i64 as u64; }

macro_rules! sortable_float {
    ($($t:ty as $u:ty;)*) => {$(
        impl Sortable for $t {
            const IMAGE_BITS: u32 = <$u>::BITS;
            #[inline(always)]
            fn image(self) -> u64 {
                const SIGN: $u = 1 << (<$u>::BITS - 1);
                let bits = self.to_bits();
                // Negative numbers backwards below the positive ones.
                let image = if bits & SIGN != 0 { !bits } else { bits | SIGN };
                let image = if self.is_nan() { <$u>::MAX } else { image };
                (if bits == SIGN { SIGN } else { image }) as u64
            }
        }
    )*};
}
sortable_float! { f32 as u32; f64 as u64; f16 as u16; bf16 as u16; }

/// An image above a position.
trait Packed: Copy + Ord + Default + Send + Sync {
    const IMAGE_SHIFT: u32;
    fn pack(image: u64, position: usize) -> Self;
    fn position(self) -> usize;
    fn byte(self, shift: u32) -> usize;
}

impl Packed for u64 {
    const IMAGE_SHIFT: u32 = 32;
    #[inline(always)]
    fn pack(image: u64, position: usize) -> u64 {
        image << 32 | position as u64
    }
    #[inline(always)]
    fn position(self) -> usize {
        self as u32 as usize
    }
    #[inline(always)]
    fn byte(self, shift: u32) -> usize {
        (self >> shift) as u8 as usize
    }
}

impl Packed for u128 {
    const IMAGE_SHIFT: u32 = 64;
    #[inline(always)]
    fn pack(image: u64, position: usize) -> u128 {
        (image as u128) << 64 | position as u128
    }
    #[inline(always)]
    fn position(self) -> usize {
        self as u64 as usize
    }
    #[inline(always)]
    fn byte(self, shift: u32) -> usize {
        (self >> shift) as u8 as usize
    }
}

/// Sorts by the images of at most `bits` bits; positions must be ascending in `items`. `spare` is as long as `items`.
fn sort_packed<P: Packed>(items: &mut [P], spare: &mut [P], bits: u32) {
    if items.len() < 512 {
        return items.sort_unstable();
    }
    let bytes = bits.div_ceil(8) as usize;
    let mut counts = vec![[0usize; 256]; bytes];
    for item in items.iter() {
        for (b, count) in counts.iter_mut().enumerate() {
            count[item.byte(P::IMAGE_SHIFT + 8 * b as u32)] += 1;
        }
    }
    let (mut from, mut to) = (&mut *items, &mut *spare);
    let mut swapped = false;
    for (b, count) in counts.iter_mut().enumerate() {
        if count.contains(&from.len()) {
            // All have the same byte here.
            continue;
        }
        let mut start = 0;
        for c in count.iter_mut() {
            start += std::mem::replace(c, start);
        }
        for &item in from.iter() {
            let place = &mut count[item.byte(P::IMAGE_SHIFT + 8 * b as u32)];
            to[*place] = item;
            *place += 1;
        }
        (from, to) = (to, from);
        swapped = !swapped;
    }
    if swapped {
        items.copy_from_slice(spare);
    }
}

/// Sorts pairs of an offset and an ascending position.
pub(crate) fn sort_in_order(items: &mut [(usize, u32)]) {
    let most = items.iter().map(|&(offset, _)| offset).max().unwrap_or(0);
    if most > u32::MAX as usize {
        return items.sort_unstable();
    }
    let mut packed: Vec<u64> = items.iter().map(|&(offset, i)| u64::pack(offset as u64, i as usize)).collect();
    let mut spare = packed.clone();
    sort_packed(&mut packed, &mut spare, usize::BITS - most.leading_zeros());
    for (item, packed) in items.iter_mut().zip(packed) {
        *item = ((packed >> u64::IMAGE_SHIFT) as usize, packed.position() as u32);
    }
}

/// A lone long line: each thread sorts a stretch, then stretches are merged.
fn sort_packed_parallel<P: Packed>(items: &mut Vec<P>, bits: u32) {
    let n = items.len();
    let mut spare = vec![P::default(); n];
    let stretch = n.div_ceil(pool::num_threads().next_power_of_two()).max(1 << 16);
    if stretch >= n {
        return sort_packed(items, &mut spare, bits);
    }
    each_pair(items, &mut spare, stretch, |items, spare| sort_packed(items, spare, bits));
    let mut run = stretch;
    while run < n {
        each_pair(items, &mut spare, 2 * run, |items, spare| merge(items, run, spare));
        std::mem::swap(items, &mut spare);
        run *= 2;
    }
}

/// Runs `f` on matching stretches of two slices, in parallel.
fn each_pair<P: Packed>(a: &mut [P], b: &mut [P], len: usize, f: impl Fn(&mut [P], &mut [P]) + Sync) {
    let pairs: Vec<_> =
        a.chunks_mut(len).zip(b.chunks_mut(len)).map(|pair| std::sync::Mutex::new(Some(pair))).collect();
    pool::parallel_for(pairs.len(), |i| {
        let pair = pairs[i].lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some((a, b)) = pair {
            f(a, b);
        }
    });
}

/// Merges the sorted `items[..middle]` and `items[middle..]` into `out`.
fn merge<P: Packed>(items: &[P], middle: usize, out: &mut [P]) {
    let (a, b) = items.split_at(middle.min(items.len()));
    let (mut i, mut j) = (0, 0);
    for slot in out {
        let left = j == b.len() || i < a.len() && a[i] < b[j];
        *slot = if left { a[i] } else { b[j] };
        i += left as usize;
        j += !left as usize;
    }
}

/// Where the operands start.
#[derive(Clone, Copy)]
struct Places<T> {
    x: *const T,
    values: *mut T,
    indices: *mut i64,
}
// SAFETY: tasks read the input and write disjoint outputs.
unsafe impl<T> Sync for Places<T> {}

/// One line of a sort: its three starts and steps.
struct Line<T> {
    places: Places<T>,
    steps: [usize; 3],
    n: usize,
}

impl<T: Sortable> Line<T> {
    /// # Safety
    /// `i < n`.
    #[inline(always)]
    unsafe fn item<P: Packed>(&self, i: usize, flip: u64) -> P {
        // SAFETY: the caller's promise; the line lies within the view.
        P::pack(unsafe { (*self.places.x.add(i * self.steps[0])).image() } ^ flip, i)
    }

    fn store<P: Packed>(&self, sorted: &[P]) {
        for (i, item) in sorted.iter().enumerate() {
            let from = item.position();
            // SAFETY: positions are below `n`, and the outputs have room for all of `sorted`.
            unsafe {
                *self.places.values.add(i * self.steps[1]) = *self.places.x.add(from * self.steps[0]);
                *self.places.indices.add(i * self.steps[2]) = from as i64;
            }
        }
    }

    fn sort<P: Packed>(&self, flip: u64, items: &mut Vec<P>, spare: &mut Vec<P>, alone: bool) {
        items.clear();
        // SAFETY: `i < n`.
        items.extend((0..self.n).map(|i| unsafe { self.item::<P>(i, flip) }));
        if alone {
            sort_packed_parallel(items, T::IMAGE_BITS);
        } else {
            spare.resize(if self.n < 512 { 0 } else { self.n }, P::default());
            sort_packed(items, spare, T::IMAGE_BITS);
        }
        self.store(items);
    }

    /// Keeps candidates in a buffer that is cut back to the best `k` whenever it is full.
    fn top<P: Packed>(&self, k: usize, flip: u64, items: &mut Vec<P>) {
        items.clear();
        let room = (2 * k).max(k + 64);
        let mut bound = None;
        for i in 0..self.n {
            // SAFETY: `i < n`.
            let item = unsafe { self.item::<P>(i, flip) };
            if bound.is_none_or(|b| item < b) {
                items.push(item);
                if items.len() == room {
                    items.select_nth_unstable(k - 1);
                    items.truncate(k);
                    bound = Some(items[k - 1]);
                }
            }
        }
        items.sort_unstable();
        items.truncate(k);
        self.store(items);
    }
}

/// What is XORed to images: nothing, or all bits where the largest come first.
fn flip<T: Sortable>(largest_first: bool) -> u64 {
    if largest_first { u64::MAX >> (64 - T::IMAGE_BITS) } else { 0 }
}

/// Calls `f` with each line of three operands and whether it is the only one worked on; in parallel if there are several.
fn each_line<T: Sortable, S: Default>(
    [x, values, indices]: [View; 3],
    dim: usize,
    work: usize,
    f: impl Fn(&Line<T>, &mut S, bool) + Sync,
) {
    let strides = [x.strides(), values.strides(), indices.strides()];
    let (n, steps) = plan::along(x.shape(), dim, strides);
    let lines = plan::lines(x.shape(), dim, strides);
    let places =
        Places::<T> { x: x.ptr().cast_const().cast(), values: values.ptr().cast(), indices: indices.ptr().cast() };
    let line = |l: usize| {
        let [x, values, indices] = lines.offsets(l);
        let p = &places;
        // SAFETY: the offsets of a line lie within the views.
        let places = unsafe { Places { x: p.x.add(x), values: p.values.add(values), indices: p.indices.add(indices) } };
        Line { places, steps, n }
    };
    let count = lines.numel();
    if count < pool::num_threads() && n >= 1 << 17 {
        (0..count).for_each(|l| f(&line(l), &mut S::default(), true));
    } else {
        pool::parallel_ranges(count, work.div_ceil(n.max(1)), |from, to| {
            let mut scratch = S::default();
            (from..to).for_each(|l| f(&line(l), &mut scratch, false));
        });
    }
}

/// Sorts along `dim`, stably, NaN as the largest; `indices` is `i64`.
pub fn sort(x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
    let n = plan::along(x.shape(), dim, [x.strides()]).0;
    if x.numel() == 0 {
        return Ok(());
    }
    let views = [x, values, indices];
    with_item!(x.dtype, T => {
        let flip = flip::<T>(descending);
        if T::IMAGE_BITS <= 32 && n <= u32::MAX as usize {
            each_line::<T, (Vec<u64>, Vec<u64>)>(views, dim, 4 << 10, |line, (a, b), alone| line.sort(flip, a, b, alone));
        } else {
            each_line::<T, (Vec<u128>, Vec<u128>)>(views, dim, 4 << 10, |line, (a, b), alone| line.sort(flip, a, b, alone));
        }
    });
    Ok(())
}

/// The `k` largest or smallest along `dim`, in order, NaN as the largest; outputs have size `k` there.
pub fn topk(x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
    let n = plan::along(x.shape(), dim, [x.strides()]).0;
    let k = plan::along(values.shape(), dim, [values.strides()]).0;
    if k > n {
        return Err(Error::index(format!("topk: k = {k} is more than the {n} elements along dimension {dim}")));
    }
    if k == 0 || x.numel() == 0 {
        return Ok(());
    }
    let views = [x, values, indices];
    with_item!(x.dtype, T => {
        let flip = flip::<T>(largest);
        if T::IMAGE_BITS <= 32 && n <= u32::MAX as usize {
            each_line::<T, Vec<u64>>(views, dim, 16 << 10, |line, items, _| line.top(k, flip, items));
        } else {
            each_line::<T, Vec<u128>>(views, dim, 16 << 10, |line, items, _| line.top(k, flip, items));
        }
    });
    Ok(())
}

/// For each value, where it would go in its row of `sorted`: before equals, or with `right` after them.
pub fn searchsorted(sorted: View, values: View, right: bool, out: View) -> Result<()> {
    if sorted.dtype != values.dtype {
        return Err(Error::dtype(format!(
            "searchsorted: boundaries are {} but values {}; they must have one dtype",
            sorted.dtype, values.dtype
        )));
    }
    with_item!(values.dtype, T => match out.dtype {
        DType::I32 => search::<T, i32>(sorted, values, right, out, |i| i as i32),
        DType::I64 => search::<T, i64>(sorted, values, right, out, |i| i as i64),
        other => return Err(Error::dtype(format!("searchsorted: the output must be int64 or int32, not {other}"))),
    });
    Ok(())
}

fn search<T: Item, O: Send>(sorted: View, values: View, right: bool, out: View, convert: impl Fn(usize) -> O + Sync) {
    // One row serves all values: then rows do not move it.
    let rank = values.shape().len();
    let rows_of_sorted: Vec<usize> = if sorted.shape().len() == rank && rank > 1 {
        let mut strides = sorted.strides().to_vec();
        strides[rank - 1] = 0;
        strides
    } else {
        vec![0; rank]
    };
    let (n, [step]) = plan::along(sorted.shape(), sorted.shape().len().wrapping_sub(1), [sorted.strides()]);
    let nest = rushlight_core::layout::Nest::new(values.shape(), [values.strides(), out.strides(), &rows_of_sorted]);
    struct Starts<T, O>(*const T, *const T, *mut O);
    // SAFETY: tasks read the inputs and write disjoint outputs.
    unsafe impl<T, O> Sync for Starts<T, O> {}
    let starts = Starts::<T, O>(sorted.ptr().cast_const().cast(), values.ptr().cast_const().cast(), out.ptr().cast());
    pool::parallel_ranges(values.numel(), 2048, |from, to| {
        let starts = &starts;
        for i in from..to {
            let [value_at, out_at, row_at] = nest.offsets(i);
            // SAFETY: offsets lie within the views, and `middle < n` within the row.
            unsafe {
                let (value, row) = ((*starts.1.add(value_at)).widen(), starts.0.add(row_at));
                let (mut low, mut high) = (0, n);
                while low < high {
                    let middle = low + (high - low) / 2;
                    let here = (*row.add(middle * step)).widen();
                    // Written so that NaN, as the value or in the row, sends the search to the right.
                    let stop = if right { here > value } else { here >= value };
                    if stop { high = middle } else { low = middle + 1 }
                }
                starts.2.add(out_at).write(convert(low));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Array, Rng};
    use rushlight_core::Element as _;
    use std::cmp::Ordering;

    /// The lines along `dim`, each with its elements in order.
    fn lines(x: &Array, dim: usize) -> Vec<Vec<f64>> {
        let shape = x.layout.shape();
        let n = shape.get(dim).copied().unwrap_or(1);
        let inner: usize = shape.iter().skip(dim + 1).product();
        let all = x.to_f64();
        (0..all.len() / n.max(1))
            .map(|l| (0..n).map(|i| all[l / inner * inner * n + i * inner + l % inner]).collect())
            .collect()
    }

    fn order(a: f64, b: f64) -> Ordering {
        a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }

    fn check(x: &Array, dim: usize, k: Option<usize>) {
        let shape = x.layout.shape();
        let mut out_shape = shape.to_vec();
        if let (Some(s), Some(k)) = (out_shape.get_mut(dim), k) {
            *s = k;
        }
        for largest_first in [false, true] {
            let (values, indices) = (Array::zeros(&out_shape, x.view().dtype), Array::zeros(&out_shape, DType::I64));
            match k {
                None => sort(x.view(), dim, largest_first, values.view(), indices.view()).unwrap(),
                Some(_) => topk(x.view(), dim, largest_first, values.view(), indices.view()).unwrap(),
            }
            let (values, indices) = (lines(&values, dim), lines(&indices, dim));
            for (l, line) in lines(x, dim).iter().enumerate() {
                let mut want: Vec<usize> = (0..line.len()).collect();
                want.sort_by(|&a, &b| {
                    let by_value = order(line[a], line[b]);
                    if largest_first { by_value.reverse() } else { by_value }
                });
                want.truncate(k.unwrap_or(line.len()));
                let got: Vec<usize> = indices[l].iter().map(|&i| i as usize).collect();
                assert_eq!(got, want, "{:?} dim {dim} largest {largest_first}", x.layout);
                assert!(values[l].iter().zip(&want).all(|(v, &i)| v.to_bits() == line[i].to_bits()));
            }
        }
    }

    #[test]
    fn sorts_stably_in_any_layout() {
        let mut rng = Rng(7);
        for round in 0..40 {
            let rank = 1 + rng.below(3);
            let shape = rng.shape(rank, if round % 4 == 0 { 40 } else { 6 });
            for dtype in DType::ALL {
                let x = rng.array(&shape, dtype);
                for dim in 0..rank {
                    check(&x, dim, None);
                    check(&x, dim, Some(1 + rng.below(shape[dim])));
                }
            }
        }
        check(&Array::contiguous(&[], vec![2i32]), 0, None);
        check(&Array::contiguous::<f32>(&[3, 0], vec![]), 1, None);
        let (x, none) = (Array::zeros(&[3], DType::F32), Array::zeros(&[0], DType::F32));
        topk(x.view(), 0, true, none.view(), Array::zeros(&[0], DType::I64).view()).unwrap();
    }

    #[test]
    fn long_lines_and_special_values() {
        let mut rng = Rng(8);
        let special = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 5e-324];
        let v: Vec<f64> = (0..200_000)
            .map(|i| if i % 50 == 0 { special[i / 50 % 7] } else { rng.draw() as f64 / 1e6 - 1000.0 })
            .collect();
        check(&Array::contiguous(&[200_000], v.clone()), 0, None);
        check(&Array::contiguous(&[100, 2_000], v.clone()), 1, None);
        check(&Array::contiguous(&[2_000, 100], v.clone()), 0, Some(7));
        let narrow: Vec<f32> = v.iter().map(|&x| x as f32).collect();
        check(&Array::contiguous(&[200_000], narrow.clone()), 0, None);
        check(&Array::contiguous(&[200_000], narrow), 0, Some(1_000));
        check(&Array::contiguous(&[200_000], v.iter().map(|&x| half::bf16::from_f64(x)).collect()), 0, None);
        check(&Array::contiguous(&[200_000], v.iter().map(|&x| x as i64 as u8).collect()), 0, None);
        check(&Array::contiguous(&[200_000], v.iter().map(|&x| (x * 1e9) as i64).collect()), 0, None);
    }

    #[test]
    fn too_many_asked_for() {
        let (x, v, i) =
            (Array::zeros(&[2], DType::F32), Array::zeros(&[3], DType::F32), Array::zeros(&[3], DType::I64));
        assert!(topk(x.view(), 0, true, v.view(), i.view()).is_err());
    }

    #[test]
    fn searches_rows() {
        let mut rng = Rng(9);
        for dtype in DType::ALL {
            for (rows, shared) in [(1, true), (4, false), (4, true)] {
                let (n, m) = (1 + rng.below(20), 1 + rng.below(9));
                let sorted_rows = if shared { 1 } else { rows };
                let mut boundaries: Vec<f64> = (0..sorted_rows * n).map(|_| rng.value()).collect();
                rushlight_core::with_dtype!(dtype, T => {
                    boundaries.iter_mut().for_each(|v| *v = T::from_f64(*v).to_f64());
                    boundaries.chunks_mut(n).for_each(|row| row.sort_by(f64::total_cmp));
                    let data = boundaries.iter().map(|&v| T::from_f64(v)).collect();
                    let shape: &[usize] = if shared { &[n] } else { &[rows, n] };
                    let sorted = Array::contiguous::<T>(shape, data);
                    let values = rng.array(&[rows, m], dtype);
                    for right in [false, true] {
                        let out = Array::zeros(&[rows, m], if right { DType::I32 } else { DType::I64 });
                        searchsorted(sorted.view(), values.view(), right, out.view()).unwrap();
                        for (i, (v, got)) in values.to_f64().into_iter().zip(out.to_f64()).enumerate() {
                            let row = if shared { &boundaries[..] } else { &boundaries[i / m * n..][..n] };
                            let want = row.iter().filter(|&&b| if right { b <= v } else { b < v }).count();
                            assert_eq!(got as usize, want, "{v} in {row:?}");
                        }
                    }
                });
            }
        }
        let (s, v, o) =
            (Array::zeros(&[0], DType::F32), Array::contiguous(&[1], vec![f32::NAN]), Array::zeros(&[1], DType::I64));
        searchsorted(s.view(), v.view(), false, o.view()).unwrap();
        assert_eq!(o.to_vec::<i64>(), [0]);
    }
}
