//! The gradient of the bias.

use super::Conv;
use super::element::{Compute, Storage};
use crate::isa::Isa;
use crate::pool;
use rushlight_core::Element;
use rushlight_core::sync::SendPtr;

/// Planes are summed in blocks: a block's sum is exact enough, and blocks are added in `f64`.
const BLOCK: usize = 1024;

/// # Safety
/// `dy` is the output's gradient, `db` the bias's.
pub(super) unsafe fn backward<T: Storage>(c: &Conv, dy: *const T, db: *mut T) {
    let (plane, channels) = (c.output_size(), c.out_channels);
    let mut sums = vec![0f64; c.batch * channels];
    let (src, dst) = (SendPtr::of(dy), SendPtr::new(sums.as_mut_ptr()));
    let grain = (64 * BLOCK / plane.max(1)).max(1);
    pool::parallel_ranges(sums.len(), grain, |start, end| {
        for i in start..end {
            // SAFETY: plane `i` of the gradient; element `i` of the sums is this task's.
            unsafe { *dst.get().add(i) = sum_plane(src.get().add(i * plane), plane) }
        }
    });
    for channel in 0..channels {
        let total: f64 = (0..c.batch).map(|image| sums[image * channels + channel]).sum();
        // SAFETY: `db` has an element for each channel.
        unsafe { T::narrow(&T::Compute::from_f64(total), db.add(channel), 1) }
    }
}

/// # Safety
/// `n` elements are valid at `src`.
unsafe fn sum_plane<T: Storage>(src: *const T, n: usize) -> f64 {
    let mut wide = [T::Compute::default(); BLOCK];
    let mut total = 0.0;
    for start in (0..n).step_by(BLOCK) {
        let len = (n - start).min(BLOCK);
        // SAFETY: the block is within the plane, and fits the buffer.
        total += unsafe {
            let block = src.add(start);
            if T::DIRECT {
                sum_block(block.cast::<T::Compute>(), len)
            } else {
                T::widen(block, wide.as_mut_ptr(), len);
                sum_block(wide.as_ptr(), len)
            }
        };
    }
    total
}

/// # Safety
/// `n` elements are valid at `src`.
// The level only chooses the features the compiler vectorises with.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
unsafe fn sum_kernel<E: Compute, I: Isa>(src: *const E, n: usize) -> f64 {
    const LANES: usize = 32;
    let mut lanes = [E::default(); LANES];
    let whole = n / LANES * LANES;
    // SAFETY: below `n`.
    unsafe {
        for start in (0..whole).step_by(LANES) {
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane += *src.add(start + i);
            }
        }
        for i in whole..n {
            lanes[i - whole] += *src.add(i);
        }
    }
    lanes.iter().map(|v| v.to_f64()).sum()
}

crate::multiversion! { unsafe fn sum_block<E: Compute>(src: *const E, n: usize) -> f64 = sum_kernel; }
