//! Indexed addition (`index_put` with `accumulate`): adds blocks at positions given by index tensors, with duplicates.
//!
//! Every strategy adds the values of a destination in the order of their positions, so results do not depend on the
//! strategy or on the number of threads.

use crate::index::{Blocks, FirstFault, TASK, Targets, each_target, innermost, read_index, wrap};
use crate::isa::Isa;
use crate::multiversion;
use crate::pool;
use crate::reduce::item::{Item, Wide};
use rushlight_core::sync::SendPtr;
use rushlight_core::{Result, View};

/// Offsets that are computed before a line of destinations is updated: the offsets and the line itself stay in
/// the caches.
const LONG_CHUNK: usize = 12 << 10;
/// Prefetch distance in blocks.
const AHEAD: usize = 6;

/// How a value is combined with its destination.
pub(crate) trait Join<T>: 'static {
    fn join(there: T, value: T) -> T;
}

/// Sums, rounded to the element's dtype after each value.
pub(crate) struct Sum;
impl<T: Item> Join<T> for Sum {
    #[inline(always)]
    fn join(there: T, value: T) -> T {
        T::narrow(there.widen().add(value.widen()))
    }
}

/// The sum of `bool` values: "or".
pub(crate) struct Or;
impl Join<u8> for Or {
    #[inline(always)]
    fn join(there: u8, value: u8) -> u8 {
        there | value
    }
}

/// Whether adjacent values belong to different positions, as in sums over the last dimension's indices: the blocks are
/// then processed element by element, each a line of values.
fn in_lines(blocks: &Blocks) -> bool {
    let (_, step) = innermost(&blocks.outer);
    let [_, value_step] = blocks.steps();
    blocks.size > 1 && blocks.outer.shape.len() <= 1 && blocks.inner.shape.len() == 1 && step < value_step
}

/// Adds the values one by one to their destinations.
pub(crate) fn in_order<T: Copy + 'static, J: Join<T>>(
    targets: &Targets,
    blocks: &Blocks,
    values: View,
    out: View,
) -> Result<()> {
    let (src, dst) = (SendPtr::new(values.ptr().cast::<T>()), SendPtr::new(out.ptr().cast::<T>()));
    let fault = FirstFault::new();
    let (count, size) = (targets.count(), blocks.size);
    let in_line = blocks.outer.shape.len() <= 1;
    let (_, step) = innermost(&blocks.outer);
    let [out_step, value_step] = blocks.steps();
    if size == 1
        && in_line
        && let Some((indices, index_step, extent, stride)) = targets.line()
    {
        for i in 0..count {
            // SAFETY: positions are within the views, and the index is checked before it is used.
            unsafe {
                let Some(at) = wrap(read_index(indices.at(i * index_step)), extent) else {
                    fault.set(i);
                    break;
                };
                let place = dst.at(at * stride);
                *place = J::join(*place, *src.at(i * step));
            }
        }
    } else if blocks.whole() && in_line {
        targets.each_chunk(0, count, &fault, |start, offsets| {
            // SAFETY: offsets were checked against the indexed dimensions; blocks are within the views, and values do
            // not overlap their destinations.
            unsafe { add_rows::<T, J>(dst.at(0), src.at(start * step), step, size, offsets) };
        });
    } else if in_lines(blocks) {
        // Destinations of one line are close to each other.
        let mut offsets = vec![0; LONG_CHUNK.min(count)];
        for first in (0..count).step_by(LONG_CHUNK) {
            let n = LONG_CHUNK.min(count - first);
            targets.each_chunk(first, first + n, &fault, |start, part| {
                offsets[start - first..][..part.len()].copy_from_slice(part);
            });
            if fault.position().is_some() {
                break;
            }
            let offsets = &offsets[..n];
            pool::parallel_ranges(size, TASK.div_ceil(n), |from, to| {
                for line in from..to {
                    let (places, values) = (dst.at(line * out_step), src.at(line * value_step + first * step));
                    for (k, &offset) in offsets.iter().enumerate() {
                        // SAFETY: as above; lines do not share places.
                        unsafe {
                            let place = places.add(offset);
                            *place = J::join(*place, *values.add(k * step));
                        }
                    }
                }
            });
        }
    } else {
        targets.each_chunk(0, count, &fault, |start, offsets| {
            blocks.elements(start, offsets, |to, from| {
                // SAFETY: as above.
                unsafe {
                    let place = dst.at(to);
                    *place = J::join(*place, *src.at(from));
                }
            });
        });
    }
    targets.check(&fault)
}

multiversion! {
    /// Adds blocks of `size` values with stride `step` to the blocks of `out` at the offsets.
    ///
    /// # Safety
    /// Each block of `out` is writable, as many values are readable, and they do not overlap.
    unsafe fn add_rows<T: Copy, J: Join<T>>(
        out: *mut T, values: *const T, step: usize, size: usize, offsets: &[usize],
    ) = add_rows_kernel;
}

#[inline(always)]
unsafe fn add_rows_kernel<T: Copy, J: Join<T>, I: Isa>(
    out: *mut T,
    values: *const T,
    step: usize,
    size: usize,
    offsets: &[usize],
) {
    let line = (64 / size_of::<T>()).max(1);
    for (k, &offset) in offsets.iter().enumerate() {
        if let Some(&next) = offsets.get(k + AHEAD) {
            for at in (0..size.min(8 * line)).step_by(line) {
                fetch(out.wrapping_add(next + at));
            }
        }
        // SAFETY: the caller's promise.
        let (to, from) = unsafe {
            (
                std::slice::from_raw_parts_mut(out.add(offset), size),
                std::slice::from_raw_parts(values.add(k * step), size),
            )
        };
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = J::join(*to, from));
    }
}

/// Prefetches a cache line for writing. Any address is allowed.
#[inline(always)]
fn fetch<T>(at: *mut T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching accesses nothing, and every x86-64 has the instruction.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Sums the values of one destination in the accumulator type and rounds once.
pub(crate) fn add<T: Item>(targets: &Targets, blocks: &Blocks, values: View, out: View) -> Result<()> {
    let rounds = size_of::<T>() < size_of::<T::Wide>() && T::DTYPE.is_float();
    let count = targets.count();
    let small = blocks.size < 16 || count * blocks.size < 4 * TASK || pool::num_threads() == 1;
    if !rounds && (small || in_lines(blocks)) || count > u32::MAX as usize {
        return in_order::<T, Sum>(targets, blocks, values, out);
    }
    let offsets = &targets.all()?[..];
    const WIDTH: usize = 256;
    let (src, dst) = (SendPtr::new(values.ptr().cast::<T>()), SendPtr::new(out.ptr().cast::<T>()));
    let [out_step, value_step] = blocks.steps();
    each_target(offsets, blocks.size, |group| {
        let offset = offsets[group[0] as usize];
        blocks.runs(|indexed, dense, n| {
            for start in (0..n).step_by(WIDTH) {
                let width = WIDTH.min(n - start);
                let place = dst.at(offset + indexed + start * out_step);
                let mut sums = [T::Wide::ZERO; WIDTH];
                // SAFETY: offsets were checked against the indexed dimensions; blocks are within the views, and those
                // of different groups do not overlap.
                unsafe {
                    for (k, sum) in sums[..width].iter_mut().enumerate() {
                        *sum = (*place.add(k * out_step)).widen();
                    }
                    for &i in group {
                        let [at] = blocks.outer.offsets(i as usize);
                        let values = src.at(at + dense + start * value_step);
                        if value_step == 1 {
                            for (k, sum) in sums[..width].iter_mut().enumerate() {
                                *sum = sum.add((*values.add(k)).widen());
                            }
                        } else {
                            for (k, sum) in sums[..width].iter_mut().enumerate() {
                                *sum = sum.add((*values.add(k * value_step)).widen());
                            }
                        }
                    }
                    for (k, &sum) in sums[..width].iter().enumerate() {
                        *place.add(k * out_step) = T::narrow(sum);
                    }
                }
            }
        });
    });
    Ok(())
}
