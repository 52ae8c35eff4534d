//! Padded copies of a band of an image, channel by channel, for the kernels with pixels as lanes.

use super::element::Storage;
use super::narrow_kernel::{SLACK, move_rows};

/// A range of positions of one dimension: `first, first + step, …`, in the source's coordinates.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub first: isize,
    pub count: usize,
    pub step: usize,
}

impl Stretch {
    /// The index range `low..high` whose positions are in `0..size`.
    fn inside(&self, size: usize) -> (usize, usize) {
        let step = self.step as isize;
        let low = (-self.first).max(0).unsigned_abs().div_ceil(self.step).min(self.count);
        let high = (size as isize - self.first + step - 1).div_euclid(step).clamp(low as isize, self.count as isize);
        (low, high as usize)
    }

    fn at(&self, index: usize) -> usize {
        (self.first + (index * self.step) as isize) as usize
    }
}

/// The planes of one band: for each channel, one per pair of a row range and a column range. With a stride, every
/// remainder of the position has its own plane, so that elements adjacent in a plane are adjacent in the result.
pub(super) struct Planes {
    pub rows: Vec<Stretch>,
    pub cols: Vec<Stretch>,
    /// Zero padding after each channel.
    pub gap: usize,
}

impl Planes {
    pub(super) fn pitch(&self) -> usize {
        self.cols[0].count
    }

    pub(super) fn plane(&self) -> usize {
        self.rows[0].count * self.pitch()
    }

    /// Channel stride in elements.
    pub(super) fn channel(&self) -> usize {
        self.rows.len() * self.cols.len() * self.plane() + self.gap
    }

    /// Number of elements for `channels` channels.
    pub(super) fn room(&self, channels: usize) -> usize {
        channels * self.channel() + self.pitch() + SLACK
    }

    /// # Safety
    /// `dst` has [`room`](Self::room) for the channels.
    pub(super) unsafe fn clear(&self, dst: *mut f32, channels: usize) {
        // SAFETY: zero bytes are zeros.
        unsafe { std::ptr::write_bytes(dst, 0, self.room(channels)) }
    }

    /// Copies the part that the image covers; the rest was zeroed before.
    ///
    /// # Safety
    /// `src` is the first of `channels` planes of `size`; `dst` has [`room`](Self::room) and was cleared.
    pub(super) unsafe fn fill<T: Storage<Compute = f32>>(
        &self,
        src: *const T,
        size: [usize; 2],
        channels: usize,
        dst: *mut f32,
    ) {
        let [height, width] = size;
        let mut line = Vec::new();
        for channel in 0..channels {
            for (r, rows) in self.rows.iter().enumerate() {
                let (top, bottom) = rows.inside(height);
                for (c, cols) in self.cols.iter().enumerate() {
                    let (left, right) = cols.inside(width);
                    if top == bottom || left == right {
                        continue;
                    }
                    // SAFETY: rows `top..bottom`, columns `left..right` are positions of the image and of the plane.
                    unsafe {
                        let plane = dst.add(channel * self.channel() + (r * self.cols.len() + c) * self.plane());
                        let to = plane.add(top * self.pitch() + left);
                        let from = src.add(channel * height * width + rows.at(top) * width + cols.at(left));
                        if T::DIRECT && cols.step == 1 {
                            let from = (from.cast::<f32>(), rows.step * width);
                            move_rows(from, (to, self.pitch()), bottom - top, right - left);
                            continue;
                        }
                        let span = (right - left - 1) * cols.step + 1;
                        line.resize(span, 0.0);
                        for row in 0..bottom - top {
                            T::widen(from.add(row * rows.step * width), line.as_mut_ptr(), span);
                            let to = std::slice::from_raw_parts_mut(to.add(row * self.pitch()), right - left);
                            to.iter_mut().zip(line.iter().step_by(cols.step)).for_each(|(to, &v)| *to = v);
                        }
                    }
                }
            }
        }
    }
}
