//! Sorting, top-k, and binary search.
//!
//! A line is sorted as packed integers: an order-preserving key of the element above its position. Packed items are all
//! distinct, so any sort of them is stable; NaN has the largest key, and both zeros have the same.

use crate::pool;
use crate::reduce::item::{Item, with_item};
use crate::reduce::plan;
use half::{bf16, f16};
use rushlight_core::backend::Rank;
use rushlight_core::{DType, Error, Result, View};

/// An element with an order-preserving key of at most `IMAGE_BITS` bits.
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
                // Shifts the least value to zero.
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
                // Negative numbers are reversed and placed below the positive ones.
                let image = if bits & SIGN != 0 { !bits } else { bits | SIGN };
                let image = if self.is_nan() { <$u>::MAX } else { image };
                (if bits == SIGN { SIGN } else { image }) as u64
            }
        }
    )*};
}
sortable_float! { f32 as u32; f64 as u64; f16 as u16; bf16 as u16; }

/// A key above a position.
trait Packed: Copy + Ord + Default + Send + Sync {
    const IMAGE_SHIFT: u32;
    fn pack(image: u64, position: usize) -> Self;
    fn position(self) -> usize;
    fn image(self) -> u64;
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
    fn image(self) -> u64 {
        self >> 32
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
    fn image(self) -> u64 {
        (self >> 64) as u64
    }
    #[inline(always)]
    fn byte(self, shift: u32) -> usize {
        (self >> shift) as u8 as usize
    }
}

/// Sorts by the keys of at most `bits` bits; positions must be ascending in `items`. `spare` is as long as `items`.
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
            // All items have the same byte here.
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

/// A single long line: each thread sorts a part, then parts are merged.
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

/// Runs `f` on matching parts of two slices, in parallel.
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

/// Addresses of the operands.
#[derive(Clone, Copy)]
struct Places<T> {
    x: *const T,
    values: *mut T,
    indices: *mut i64,
}
// SAFETY: tasks read the input and write disjoint outputs.
unsafe impl<T> Sync for Places<T> {}

/// One line of a sort: addresses and strides of its three operands.
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
        // SAFETY: the caller's promise; the line is within the view.
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

    /// [`sort`](Line::sort) of elements whose key and position do not fit 64 bits together: by the upper half of the
    /// bits in which the keys differ, then each run of equal ones by the rest.
    fn sort_wide(&self, flip: u64, items: &mut Vec<u64>, spare: &mut Vec<u64>, alone: bool) {
        // SAFETY: `i < n`.
        let image = |i: usize| unsafe { (*self.places.x.add(i * self.steps[0])).image() } ^ flip;
        let (least, most) = (0..self.n).map(image).fold((u64::MAX, 0), |(l, m), v| (l.min(v), m.max(v)));
        let bits = u64::BITS - (most.wrapping_sub(least)).leading_zeros();
        // Integers that fill their range differ in the upper bits; floats cluster.
        let enough = if T::DTYPE.is_float() { 32 } else { (self.n.ilog2() + 5).next_multiple_of(8).min(32) };
        let drop = bits.saturating_sub(enough);
        items.clear();
        items.extend((0..self.n).map(|i| u64::pack(image(i).wrapping_sub(least) >> drop, i)));
        let bits = bits.min(enough);
        if alone {
            sort_packed_parallel(items, bits);
        } else {
            spare.resize(if self.n < 512 { 0 } else { self.n }, 0);
            sort_packed(items, spare, bits);
        }
        if drop > 0 {
            let upper = |item: u64| item >> u64::IMAGE_SHIFT;
            for equals in items.chunk_by_mut(|&a, &b| upper(a) == upper(b)).filter(|g| g.len() > 1) {
                equals.sort_unstable_by_key(|&item| (image(item.position()), item));
            }
        }
        self.store(items);
    }

    /// Finds the element of a rank: counts the upper bits of the keys, then searches those that share its own.
    fn kth<P: Packed>(&self, rank: Rank, items: &mut Vec<P>) {
        const DIGIT: u32 = 11;
        // SAFETY: `i < n`.
        let image = |i: usize| unsafe { (*self.places.x.add(i * self.steps[0])).image() };
        let nan = T::DTYPE.is_float().then_some(u64::MAX >> (64 - T::IMAGE_BITS));
        let counted = self.n >= 4096;
        // Wide integers may differ in their lower bits alone.
        let (least, shift) = if counted && T::IMAGE_BITS == 64 {
            let (least, most) = (0..self.n).map(image).fold((u64::MAX, 0), |(l, m), v| (l.min(v), m.max(v)));
            (least, (u64::BITS - most.wrapping_sub(least).leading_zeros()).saturating_sub(DIGIT))
        } else {
            (0, T::IMAGE_BITS.saturating_sub(DIGIT))
        };
        // In range even if another thread changes the elements.
        let digit_of = |image: u64| (image.wrapping_sub(least) >> shift) as usize % (1 << DIGIT);
        let (mut counts, mut nans) = ([0u32; 1 << DIGIT], 0);
        items.clear();
        if counted {
            for i in 0..self.n {
                let image = image(i);
                counts[digit_of(image)] += 1;
                nans += (Some(image) == nan) as usize;
            }
        } else {
            // SAFETY: `i < n`.
            items.extend((0..self.n).map(|i| unsafe { self.item::<P>(i, 0) }));
            if let (Some(nan), Rank::Median | Rank::NanMedian) = (nan, rank) {
                nans = items.iter().filter(|item| item.image() == nan).count();
            }
        }
        let rank = match rank {
            Rank::At(k) => k.min(self.n - 1),
            // The first NaN.
            Rank::Median if nans > 0 => self.n - nans,
            Rank::Median => (self.n - 1) / 2,
            Rank::NanMedian => (self.n - nans).saturating_sub(1) / 2,
        };
        let mut before = 0;
        if counted {
            let mut digit = 0;
            while before + counts[digit] as usize <= rank {
                before += counts[digit] as usize;
                digit += 1;
            }
            items.reserve(counts[digit] as usize);
            for i in 0..self.n {
                let image = image(i);
                if digit_of(image) == digit {
                    items.push(P::pack(image, i));
                }
            }
        }
        // Another thread may have changed the elements since they were counted.
        let last = items.len().saturating_sub(1);
        let found = match items.is_empty() {
            false => *items.select_nth_unstable((rank - before).min(last)).1,
            true => P::pack(image(0), 0),
        };
        self.store(&[found]);
    }

    /// Keeps candidates in a buffer that is reduced to the best `k` whenever it is full.
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

/// The mask XORed to keys: zero, or all bits for descending order.
fn flip<T: Sortable>(largest_first: bool) -> u64 {
    if largest_first { u64::MAX >> (64 - T::IMAGE_BITS) } else { 0 }
}

/// Calls `f` with each line of three operands and whether it is the only one worked on; in parallel if there are
/// several.
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
        // SAFETY: the offsets of a line are within the views.
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
    with_item!(x.dtype(), T => {
        let flip = flip::<T>(descending);
        let is_short = n <= u32::MAX as usize;
        // Constant conditions: no sort is compiled for keys that do not need it.
        if const { T::IMAGE_BITS <= 32 } && is_short {
            each_line::<T, (Vec<u64>, Vec<u64>)>(views, dim, 4 << 10, |line, (a, b), alone| line.sort(flip, a, b, alone));
        } else if const { T::IMAGE_BITS > 32 } && is_short && n >= 512 {
            each_line::<T, (Vec<u64>, Vec<u64>)>(views, dim, 4 << 10, |line, (a, b), alone| line.sort_wide(flip, a, b, alone));
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
    with_item!(x.dtype(), T => {
        let flip = flip::<T>(largest);
        if const { T::IMAGE_BITS <= 32 } && n <= u32::MAX as usize {
            each_line::<T, Vec<u64>>(views, dim, 16 << 10, |line, items, _| line.top(k, flip, items));
        } else {
            each_line::<T, Vec<u128>>(views, dim, 16 << 10, |line, items, _| line.top(k, flip, items));
        }
    });
    Ok(())
}

/// The element of a rank along `dim`; see `call::Kth`. The outputs have size one there.
pub fn kth(x: View, dim: usize, rank: Rank, values: View, indices: View) -> Result<bool> {
    let n = plan::along(x.shape(), dim, [x.strides()]).0;
    if n == 0 {
        return Err(Error::index(format!("kth: dimension {dim} has no elements")));
    }
    // Elements are counted by 32 bits.
    if n > u32::MAX as usize || x.numel() == 0 {
        return Ok(x.numel() == 0);
    }
    let views = [x, values, indices];
    with_item!(x.dtype(), T => {
        if const { T::IMAGE_BITS <= 32 } {
            each_line::<T, Vec<u64>>(views, dim, 16 << 10, |line, items, _| line.kth(rank, items));
        } else {
            each_line::<T, Vec<u128>>(views, dim, 16 << 10, |line, items, _| line.kth(rank, items));
        }
    });
    Ok(true)
}

/// Insertion index of each value in its row of `sorted`: before equal elements, or with `right` after them.
pub fn searchsorted(sorted: View, values: View, right: bool, out: View) -> Result<()> {
    if sorted.dtype() != values.dtype() {
        return Err(Error::dtype(format!(
            "searchsorted: boundaries are {} but values {}; they must have one dtype",
            sorted.dtype(),
            values.dtype()
        )));
    }
    with_item!(values.dtype(), T => match out.dtype() {
        DType::I32 => search::<T, i32>(sorted, values, right, out, |i| i as i32),
        DType::I64 => search::<T, i64>(sorted, values, right, out, |i| i as i64),
        other => return Err(Error::dtype(format!("searchsorted: the output must be int64 or int32, not {other}"))),
    });
    Ok(())
}

fn search<T: Item, O: Send>(sorted: View, values: View, right: bool, out: View, convert: impl Fn(usize) -> O + Sync) {
    // If one row is used for all values, its row strides are zero.
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
            // SAFETY: offsets are within the views, and `middle < n` within the row.
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
