//! Length checks, batch slicing and the views the algorithms work on.

use crate::real::Scalar;
use crate::view::{Mat, MatMut};
use rushlight_core::{Error, Result};

/// Checks that a slice holds `batch` matrices of `rows × cols`. Absurd sizes do not overflow.
pub fn check(call: &str, what: &str, len: usize, batch: usize, rows: usize, cols: usize) -> Result<()> {
    let expected = batch.checked_mul(rows).and_then(|x| x.checked_mul(cols));
    if expected == Some(len) {
        return Ok(());
    }
    Err(Error::value(format!(
        "{call}: {what} has {len} elements, but a batch of {batch} matrices of {rows}x{cols} was expected"
    )))
}

/// Matrix `index` of a batch of matrices of `size` elements.
pub fn item<T>(data: &[T], index: usize, size: usize) -> &[T] {
    &data[index * size..(index + 1) * size]
}

/// Matrix `index` of a batch of matrices of `size` elements, mutable.
pub fn item_mut<T>(data: &mut [T], index: usize, size: usize) -> &mut [T] {
    &mut data[index * size..(index + 1) * size]
}

pub fn row_major<T: Copy>(data: &[T], rows: usize, cols: usize) -> Mat<'_, T> {
    Mat::new(data, (rows, cols), (cols, 1))
}

pub fn row_major_mut<T: Copy>(data: &mut [T], rows: usize, cols: usize) -> MatMut<'_, T> {
    MatMut::new(data, (rows, cols), (cols, 1))
}

pub fn col_major<T: Copy>(data: &[T], rows: usize, cols: usize) -> Mat<'_, T> {
    Mat::new(data, (rows, cols), (1, rows))
}

pub fn col_major_mut<T: Copy>(data: &mut [T], rows: usize, cols: usize) -> MatMut<'_, T> {
    MatMut::new(data, (rows, cols), (1, rows))
}

/// Writes the transpose of the row-major `rows × cols` matrix `from` to `to`.
pub fn transpose<T: Copy>(from: &[T], to: &mut [T], rows: usize, cols: usize) {
    // Tiles of this side keep both matrices in the first-level cache.
    const TILE: usize = 16;
    for i0 in (0..rows).step_by(TILE) {
        let i1 = rows.min(i0 + TILE);
        for j0 in (0..cols).step_by(TILE) {
            for j in j0..cols.min(j0 + TILE) {
                for i in i0..i1 {
                    to[j * rows + i] = from[i * cols + j];
                }
            }
        }
    }
}

/// Writes the columns `order` of a matrix, each of `rows` elements, to `to` row by row.
pub fn transpose_ordered<'a, T: Copy + 'a>(
    rows: usize,
    order: &[usize],
    column: impl Fn(usize) -> &'a [T],
    to: &mut [T],
) {
    const TILE: usize = 16;
    let cols = order.len();
    for j0 in (0..cols).step_by(TILE) {
        let order = &order[j0..cols.min(j0 + TILE)];
        for i0 in (0..rows).step_by(TILE) {
            let i1 = rows.min(i0 + TILE);
            for (j, &from) in order.iter().enumerate() {
                for (i, &value) in column(from)[i0..i1].iter().enumerate() {
                    to[(i0 + i) * cols + j0 + j] = value;
                }
            }
        }
    }
}

/// Writes the identity to the square matrix `out`.
pub fn set_identity<T: Scalar>(out: &mut [T], n: usize) {
    out.fill(T::ZERO);
    out.iter_mut().step_by(n + 1).for_each(|d| *d = T::ONE);
}

/// Scales a matrix whose largest entry is far from one by a power of two, so that squares neither overflow nor
/// underflow. Returns the factor for singular values or eigenvalues, or `None` if an entry is not finite.
pub fn rescale<T: Scalar>(a: &mut [T]) -> Option<T> {
    // Independent lanes, which the compiler vectorises. A product with zero is zero, or NaN if the number is not
    // finite.
    const LANES: usize = 16;
    let (mut most, mut check) = ([T::ZERO; LANES], [T::ZERO; LANES]);
    let (chunks, rest) = a.as_chunks::<LANES>();
    let mut padded = [T::ZERO; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&padded]) {
        for lane in 0..LANES {
            let size = chunk[lane].abs();
            most[lane] = if size > most[lane] { size } else { most[lane] };
            check[lane] += chunk[lane] * T::ZERO;
        }
    }
    let largest = most.into_iter().fold(T::ZERO, |largest, x| if x > largest { x } else { largest });
    if !check.into_iter().fold(T::ZERO, |sum, x| sum + x).is_finite() {
        return None;
    }
    let far = T::from_f64((1u64 << 20) as f64);
    if largest == T::ZERO || (T::ONE / far..far).contains(&largest) {
        return Some(T::ONE);
    }
    // Keeps the exponent bits only. A subnormal f64 has none; its scale is close enough to one.
    let exponent = f64::from_bits(largest.to_f64().to_bits() & 0x7FF0_0000_0000_0000).max(f64::MIN_POSITIVE);
    let scale = T::from_f64(exponent);
    a.iter_mut().for_each(|x| *x /= scale);
    Some(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_refuses_wrong_and_overflowing_sizes() {
        assert!(check("op", "a", 12, 2, 2, 3).is_ok());
        assert!(check("op", "a", 0, 0, usize::MAX, usize::MAX).is_ok());
        assert!(check("op", "a", 0, usize::MAX, usize::MAX, 2).is_err());
        let message = check("op", "a", 11, 2, 2, 3).unwrap_err().to_string();
        assert_eq!(message, "op: a has 11 elements, but a batch of 2 matrices of 2x3 was expected");
    }

    #[test]
    fn transpose_covers_partial_tiles() {
        let (rows, cols) = (19, 33);
        let a: Vec<usize> = (0..rows * cols).collect();
        let mut t = vec![0; rows * cols];
        transpose(&a, &mut t, rows, cols);
        for i in 0..rows {
            for j in 0..cols {
                assert_eq!(t[j * rows + i], a[i * cols + j]);
            }
        }
    }

    #[test]
    fn rescale_only_touches_extreme_matrices() {
        let mut usual = [1.0f64, -3.0];
        assert_eq!((rescale(&mut usual), usual), (Some(1.0), [1.0, -3.0]));
        let mut huge = [1e300f64, -5e299];
        let scale = rescale(&mut huge).unwrap();
        assert!(huge[0] >= 1.0 && huge[0] < 2.0 && scale.to_bits().trailing_zeros() >= 52);
        assert_eq!(huge.map(|x| x * scale), [1e300, -5e299]);
        let mut tiny = [1e-40f32, 5e-41];
        let scale = rescale(&mut tiny).unwrap();
        assert!(tiny[0] >= 1.0 && tiny[0] < 2.0 && scale > 0.0);
        assert_eq!(rescale(&mut [f64::NAN, 1.0]), None);
        assert_eq!(rescale(&mut [0.0f32; 0]), Some(1.0));
    }
}
