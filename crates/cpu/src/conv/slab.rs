//! Channel-last copies of a part of an image.

use super::element::{Storage, transpose_in};

/// A box of one image: some planes, a range of rows and of columns, and all channels of a group, adjacent for each
/// pixel. Positions outside the image are zero, so kernels need no border tests.
pub(super) struct Slab {
    /// The image's depth index of each plane.
    planes: Vec<isize>,
    rows: usize,
    cols: usize,
    channels: usize,
    image: [usize; 3],
    /// Origin of the box in the image.
    row: isize,
    col: isize,
    /// First image row in the box, and their number.
    first: usize,
    present: usize,
    /// Offset in a plane of the slab for each image pixel of those rows; pixels outside the box go past its end.
    at: Vec<usize>,
}

impl Slab {
    /// A slab of planes `planes`, rows `row .. row + rows`, columns `col .. col + cols` of an image of size `image`.
    pub(super) fn new(
        channels: usize,
        image: [usize; 3],
        planes: Vec<isize>,
        (row, rows): (isize, usize),
        (col, cols): (isize, usize),
    ) -> Self {
        let [_, height, width] = image;
        let first = row.clamp(0, height as isize) as usize;
        let last = (row + rows as isize).clamp(first as isize, height as isize) as usize;
        let mut slab =
            Self { planes, rows, cols, channels, image, row, col, first, present: last - first, at: Vec::new() };
        let (dump, pitch) = (slab.len(), slab.pitch());
        slab.at.reserve((last - first) * width);
        for r in first..last {
            let start = (r as isize - row) as usize * cols;
            slab.at.extend((0..width as isize).map(|c| {
                let inside = c >= col && c < col + cols as isize;
                if inside { (start + (c - col) as usize) * pitch } else { dump }
            }));
        }
        slab
    }

    /// Pixel stride: whole vectors of channels.
    pub(super) fn pitch(&self) -> usize {
        self.channels.next_multiple_of(16)
    }

    pub(super) fn row_pitch(&self) -> usize {
        self.cols * self.pitch()
    }

    pub(super) fn plane_pitch(&self) -> usize {
        self.rows * self.row_pitch()
    }

    fn len(&self) -> usize {
        self.planes.len() * self.plane_pitch()
    }

    /// Scratch elements that the slab needs, including pixels that are cut off.
    pub(super) fn room(&self) -> usize {
        let cut = if self.at.iter().any(|&a| a == self.len()) { self.len() + self.pitch() } else { self.pitch() };
        self.len() + cut
    }

    /// Zeroes the positions that the image does not cover. They stay zero: filling writes only the covered positions.
    ///
    /// # Safety
    /// `dst` has [`room`](Self::room) elements.
    pub(super) unsafe fn clear<E: Copy>(&self, dst: *mut E) {
        let [depth, _, width] = self.image;
        let (top, bottom) = (self.first as isize - self.row, (self.first + self.present) as isize - self.row);
        let left = (-self.col).clamp(0, self.cols as isize) as usize;
        let right = (width as isize - self.col).clamp(left as isize, self.cols as isize) as usize;
        let zero = |start: usize, pixels: usize| {
            // SAFETY: pixels of the slab; all-zero bytes are a float's zero.
            unsafe { std::ptr::write_bytes(dst.add(start * self.pitch()), 0, pixels * self.pitch()) }
        };
        for (i, &plane) in self.planes.iter().enumerate() {
            let covered = plane >= 0 && plane < depth as isize;
            for row in 0..self.rows {
                let start = (i * self.rows + row) * self.cols;
                if covered && (top..bottom).contains(&(row as isize)) {
                    zero(start, left);
                    zero(start + right, self.cols - right);
                } else {
                    zero(start, self.cols);
                }
            }
        }
    }

    /// Copies the box from `image`, which points to the group's first channel.
    ///
    /// # Safety
    /// `image` has `channels` planes stacks of the image's size, `dst` has [`room`](Self::room) elements and was
    /// cleared.
    pub(super) unsafe fn fill<T: Storage>(&self, image: *const T, dst: *mut T::Compute) {
        let [depth, height, width] = self.image;
        for (i, &plane) in self.planes.iter().enumerate() {
            if plane < 0 || plane >= depth as isize || self.at.is_empty() {
                continue;
            }
            // SAFETY: `at` maps exactly the pixels of rows `first..last`.
            unsafe {
                let src = image.add((plane as usize * height + self.first) * width);
                let stride = depth * height * width;
                for channel in (0..self.channels).step_by(16) {
                    let count = (self.channels - channel).min(16);
                    let dst = dst.add(i * self.plane_pitch() + channel);
                    transpose_in::<T>(src.add(channel * stride), stride, count, dst, &self.at);
                }
            }
        }
    }
}
