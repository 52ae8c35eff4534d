//! Views of matrices with any strides. A mutable view can be split into views that do not overlap.

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix whose entry `(i, j)` is `i * row_stride + j * col_stride` elements after the first.
pub struct Mat<'a, T> {
    /// Written to only by the [`MatMut`] that holds the view.
    start: *mut T,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    memory: PhantomData<&'a [T]>,
}

impl<T> Clone for Mat<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Mat<'_, T> {}

impl<'a, T: Copy> Mat<'a, T> {
    pub fn new(data: &'a [T], (rows, cols): (usize, usize), (row_stride, col_stride): (usize, usize)) -> Self {
        assert_fits(data.len(), (rows, cols), (row_stride, col_stride));
        Self { start: data.as_ptr().cast_mut(), rows, cols, row_stride, col_stride, memory: PhantomData }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    pub fn col_stride(&self) -> usize {
        self.col_stride
    }

    /// The address of the first entry.
    pub fn as_ptr(&self) -> *const T {
        self.start
    }

    #[cfg(test)]
    pub fn at(&self, row: usize, col: usize) -> T {
        assert!(row < self.rows && col < self.cols);
        // SAFETY: the entry is within the matrix, which the constructor has checked to be within the slice.
        unsafe { *self.start.add(row * self.row_stride + col * self.col_stride) }
    }

    pub fn transpose(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    pub fn block(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows && cols.start <= cols.end && cols.end <= self.cols);
        let (rows_len, cols_len) = (rows.len(), cols.len());
        // An empty block may begin past the end.
        let first = if rows_len == 0 || cols_len == 0 {
            0
        } else {
            rows.start * self.row_stride + cols.start * self.col_stride
        };
        // SAFETY: `first` is the place of an entry, or zero.
        let start = unsafe { self.start.add(first) };
        Self { start, rows: rows_len, cols: cols_len, ..self }
    }

    /// Column `col` of a matrix whose columns are contiguous.
    pub fn column(self, col: usize) -> &'a [T] {
        assert!(col < self.cols && (self.row_stride == 1 || self.rows <= 1));
        // SAFETY: the column is within the matrix and contiguous.
        unsafe { std::slice::from_raw_parts(self.start.add(col * self.col_stride), self.rows) }
    }
}

/// A [`Mat`] to write to: no other view reaches its entries.
pub struct MatMut<'a, T> {
    view: Mat<'a, T>,
    memory: PhantomData<&'a mut [T]>,
}

impl<'a, T: Copy> MatMut<'a, T> {
    pub fn new(data: &'a mut [T], (rows, cols): (usize, usize), (row_stride, col_stride): (usize, usize)) -> Self {
        assert_fits(data.len(), (rows, cols), (row_stride, col_stride));
        // Otherwise two entries could share an element.
        assert!(rows <= 1 || cols <= 1 || row_stride >= cols * col_stride || col_stride >= rows * row_stride);
        let start = data.as_mut_ptr();
        Self::over(Mat { start, rows, cols, row_stride, col_stride, memory: PhantomData })
    }

    fn over(view: Mat<'a, T>) -> Self {
        Self { view, memory: PhantomData }
    }

    pub fn rows(&self) -> usize {
        self.view.rows
    }

    pub fn cols(&self) -> usize {
        self.view.cols
    }

    pub fn row_stride(&self) -> usize {
        self.view.row_stride
    }

    pub fn col_stride(&self) -> usize {
        self.view.col_stride
    }

    /// The address of the first entry.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.view.start
    }

    pub fn as_ref(&self) -> Mat<'_, T> {
        self.view
    }

    /// The same view for a shorter time.
    pub fn reborrow(&mut self) -> MatMut<'_, T> {
        MatMut::over(self.view)
    }

    pub fn transpose(self) -> Self {
        Self::over(self.view.transpose())
    }

    pub fn block(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        Self::over(self.view.block(rows, cols))
    }

    /// The rows before `row` and the others.
    pub fn split_rows(self, row: usize) -> (Self, Self) {
        let (rows, cols) = (self.rows(), self.cols());
        (Self::over(self.view.block(0..row, 0..cols)), Self::over(self.view.block(row..rows, 0..cols)))
    }

    /// The columns before `col` and the others.
    pub fn split_cols(self, col: usize) -> (Self, Self) {
        let (left, right) = self.transpose().split_rows(col);
        (left.transpose(), right.transpose())
    }

    #[inline]
    pub fn set(&mut self, row: usize, col: usize, value: T) {
        assert!(row < self.view.rows && col < self.view.cols);
        // SAFETY: as in `Mat::at`; no other view reaches the entry.
        unsafe { *self.view.start.add(row * self.view.row_stride + col * self.view.col_stride) = value }
    }

    /// Column `col` of a matrix whose columns are contiguous.
    pub fn column_mut(&mut self, col: usize) -> &mut [T] {
        assert!(col < self.view.cols && (self.view.row_stride == 1 || self.view.rows <= 1));
        // SAFETY: the column is within the matrix and contiguous, and no other view reaches it.
        unsafe { std::slice::from_raw_parts_mut(self.view.start.add(col * self.view.col_stride), self.view.rows) }
    }
}

/// Panics unless a slice of `len` elements holds the whole matrix.
fn assert_fits(len: usize, (rows, cols): (usize, usize), (row_stride, col_stride): (usize, usize)) {
    if rows > 0 && cols > 0 {
        let last = (rows - 1).checked_mul(row_stride).zip((cols - 1).checked_mul(col_stride));
        let last = last.and_then(|(rows, cols)| rows.checked_add(cols));
        assert!(last.is_some_and(|last| last < len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_transposes_name_the_same_entries() {
        let data: Vec<usize> = (0..20).collect();
        let a = Mat::new(&data, (4, 5), (5, 1));
        assert_eq!((a.at(2, 3), a.transpose().at(3, 2)), (13, 13));
        let block = a.block(1..3, 2..5);
        assert_eq!((block.rows(), block.cols(), block.at(1, 2)), (2, 3, 14));
        assert_eq!(block.transpose().column(1), [12, 13, 14]);
        let empty = a.block(4..4, 5..5);
        assert_eq!((empty.rows(), empty.cols()), (0, 0));
    }

    #[test]
    fn parts_are_written_apart() {
        let mut data = [0; 12];
        let a = MatMut::new(&mut data, (3, 4), (4, 1));
        let (top, bottom) = a.split_rows(1);
        let (mut left, mut right) = bottom.split_cols(3);
        top.transpose().column_mut(0)[1] = 1;
        left.set(1, 2, 2);
        right.reborrow().transpose().column_mut(0)[0] = 3;
        assert_eq!(data, [0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 2, 0]);
    }

    #[test]
    #[should_panic]
    fn a_short_slice_is_refused() {
        Mat::new(&[0; 11], (3, 4), (4, 1));
    }

    #[test]
    #[should_panic]
    fn entries_that_share_an_element_are_refused() {
        MatMut::new(&mut [0; 11], (3, 4), (2, 1));
    }
}
