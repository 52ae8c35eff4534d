//! Eigenvalues of symmetric tridiagonal matrices without vectors.
//!
//! The iteration of Pal, Walker and Kahan (LAPACK's `sterf`) keeps the squares of the entries beside the diagonal, so a
//! rotation needs no square root. The two divisions of a rotation do not depend on each other.

/// Problems up to this size are solved by iteration; divide and conquer takes fewer operations for larger ones.
pub const MAX_ROWS: usize = 96;

/// Squares below this do not count beside one.
const VANISHING: f64 = 1e-280;

/// Replaces the diagonal by the eigenvalues, in no order. `squares` holds the squares of the entries beside the
/// diagonal, and one more. The largest number is near one; entries below `tolerance` times their neighbours on the
/// diagonal count as zero. `false` if the iteration does not converge.
pub fn eigenvalues(diagonal: &mut [f64], squares: &mut [f64], tolerance: f64) -> bool {
    let n = diagonal.len();
    assert_eq!(squares.len(), n);
    let Some(last) = n.checked_sub(1) else { return true };
    // The iteration finds the first eigenvalues first, and the small ones more precisely if it finds them first.
    if diagonal[0].abs() > diagonal[last].abs() {
        diagonal.reverse();
        squares[..last].reverse();
    }
    let tolerance = tolerance * tolerance;
    let mut sweeps_left = 30 * n;
    let mut top = 0;
    while top < last {
        let negligible = |i: usize| squares[i] <= VANISHING + tolerance * (diagonal[i] * diagonal[i + 1]).abs();
        let end = (top..last).find(|&i| negligible(i)).unwrap_or(last);
        if end == top {
            top += 1;
            continue;
        }
        if sweeps_left == 0 {
            return false;
        }
        sweeps_left -= 1;
        sweep(&mut diagonal[top..=end], &mut squares[top..end]);
    }
    true
}

/// One sweep over a block whose entries beside the diagonal all count.
fn sweep(diagonal: &mut [f64], squares: &mut [f64]) {
    let end = squares.len();
    // Wilkinson's shift: the eigenvalue of the leading 2x2 block that is nearer to its first entry.
    let beside = squares[0].sqrt();
    let half_gap = (diagonal[1] - diagonal[0]) / (2.0 * beside);
    let radius = (half_gap * half_gap + 1.0).sqrt();
    let shift = diagonal[0] - beside / (half_gap + radius.copysign(half_gap));
    let (mut cos, mut sin) = (1.0, 0.0);
    let mut gamma = diagonal[end] - shift;
    let mut product = gamma * gamma;
    for i in (0..end).rev() {
        let square = squares[i];
        let total = product + square;
        if i + 1 < end {
            squares[i + 1] = sin * total;
        }
        let (before, value) = (gamma, diagonal[i]);
        let (cos_before, ratio) = (cos, total / product);
        cos = product / total;
        sin = square / total;
        gamma = cos * (value - shift) - sin * before;
        diagonal[i + 1] = before + (value - gamma);
        product = if product > VANISHING { gamma * gamma * ratio } else { cos_before * square };
    }
    squares[0] = sin * product;
    diagonal[0] = shift + gamma;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_known_matrix() {
        // Zeros on the diagonal and ones beside it: the eigenvalues are 2 cos(kπ / (n + 1)).
        for n in [1usize, 2, 3, 8, 33, 96] {
            let (mut found, mut squares) = (vec![0.0; n], vec![1.0; n]);
            assert!(eigenvalues(&mut found, &mut squares, f64::EPSILON));
            found.sort_by(f64::total_cmp);
            for (k, value) in found.iter().enumerate() {
                let expected = 2.0 * (std::f64::consts::PI * (n - k) as f64 / (n + 1) as f64).cos();
                assert!((value - expected).abs() < 4e-15, "{n}: {value} instead of {expected}");
            }
        }
        assert!(eigenvalues(&mut [], &mut [], f64::EPSILON));
    }

    #[test]
    fn values_of_matrices_that_fall_apart() {
        let mut found = [3.0, 1.0, 2.0, 2.0];
        assert!(eigenvalues(&mut found, &mut [0.0, 0.0, 1.0, 0.0], f64::EPSILON));
        found.sort_by(f64::total_cmp);
        for (value, expected) in found.iter().zip([1.0, 1.0, 3.0, 3.0]) {
            assert!((value - expected).abs() < 1e-14);
        }
        let mut zeros = [0.0; 5];
        assert!(eigenvalues(&mut zeros, &mut [0.0; 5], f64::EPSILON));
        assert_eq!(zeros, [0.0; 5]);
        // Graded over 30 decades, in both directions.
        let mut down: Vec<f64> = (0..31).map(|i| 10f64.powi(-i)).collect();
        let mut squares: Vec<f64> = down.iter().map(|x| 0.01 * x * x).collect();
        let mut up: Vec<f64> = down.iter().rev().copied().collect();
        let mut reversed: Vec<f64> = squares[..30].iter().rev().copied().collect();
        reversed.push(0.0);
        assert!(eigenvalues(&mut down, &mut squares, f64::EPSILON));
        assert!(eigenvalues(&mut up, &mut reversed, f64::EPSILON));
        down.sort_by(f64::total_cmp);
        up.sort_by(f64::total_cmp);
        for (a, b) in down.iter().zip(&up) {
            assert!((a - b).abs() < 1e-15, "{a} {b}");
        }
    }
}
