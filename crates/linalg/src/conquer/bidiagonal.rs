//! Singular values and vectors of upper bidiagonal matrices.
//!
//! A block has `n` rows of the matrix and the `n` or `n + 1` columns where they are nonzero. Removing its middle row
//! splits a block into two blocks with one column more than rows. Multiplied by the right vectors of both, the middle
//! row becomes `z`, and the block becomes the matrix `diag(0, d)` with first row `z`. Its singular values are the roots
//! of `1 + Σ zⱼ²/(dⱼ² - σ²) = 0` (Gu and Eisenstat; LAPACK's `bdsdc`). Column `middle` of the right vectors is the null
//! vector of the upper block; it belongs to the zero of the diagonal. Small problems are
//! solved by QR iteration as a whole.

use super::*;

/// Problems up to this size are solved by QR iteration.
const SMALL: usize = 24;

/// A problem of one size: input, workspace and solution.
pub struct BidiagonalProblem<T> {
    /// The diagonal; after [`BidiagonalProblem::solve`] the singular values, unsorted.
    pub diagonal: Vec<f64>,
    /// The superdiagonal, and one more entry.
    pub beside: Vec<f64>,
    /// After [`BidiagonalProblem::solve`]: indices of the singular values in ascending order.
    pub order: Vec<usize>,
    /// Left and right vectors; `None` for values only.
    vectors: Option<(Basis<T>, Basis<T>)>,
    /// First and last rows of the right vectors.
    ends: Ends,
    z: Vec<f64>,
    support: Vec<Support>,
    sorted: Vec<usize>,
    join: Join,
    secular: Secular,
    left_factors: Vec<T>,
    right_factors: Vec<T>,
    packed: Vec<T>,
    scratch: Vec<f64>,
}

/// The rows of a block, and the middle row that couples its halves.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    middle: usize,
    end: usize,
    /// Whether the block has one column more than rows.
    wide: bool,
}

impl<T: Scalar> BidiagonalProblem<T> {
    pub fn new(n: usize, vectors: bool) -> Self {
        Self {
            diagonal: vec![0.0; n],
            beside: vec![0.0; n],
            order: vec![0; n],
            vectors: vectors.then(|| (Basis::new(n), Basis::new(n))),
            ends: Ends::new(if vectors { 0 } else { n }),
            z: vec![0.0; n],
            support: vec![Support::Top; n],
            sorted: Vec::new(),
            join: Join::default(),
            secular: Secular::new(true, secular_tolerance::<T>()),
            left_factors: Vec::new(),
            right_factors: Vec::new(),
            packed: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Solves the problem that [`BidiagonalProblem::diagonal`] and [`BidiagonalProblem::beside`] hold.
    pub fn solve(&mut self) {
        let n = self.diagonal.len();
        if let Some((left, right)) = &mut self.vectors {
            left.set_identity();
            right.set_identity();
        } else {
            self.ends.first.fill(1.0);
            self.ends.last.fill(1.0);
        }
        self.beside[n - 1] = 0.0;
        let scale = normalise(&mut self.diagonal, &mut self.beside);
        // Squares of f32 are precise in f64; those of f64 would lose half of the digits of small values.
        let squares_are_precise = T::EPSILON.to_f64() > f64::EPSILON.sqrt();
        let done = match self.vectors {
            None if n <= values::MAX_ROWS && squares_are_precise => self.solve_squares(),
            _ => n <= SMALL && self.solve_small(),
        };
        if !done {
            self.solve_block(0, n, false);
        }
        self.diagonal.iter_mut().for_each(|x| *x *= scale);
    }

    /// The left and the right vectors as padded columns.
    pub fn padded_vectors_mut(&mut self) -> Option<(&mut [T], &mut [T])> {
        self.vectors.as_mut().map(|(left, right)| (&mut *left.columns, &mut *right.columns))
    }

    /// The left vectors by columns, in the order of [`BidiagonalProblem::diagonal`].
    pub fn left(&self) -> Option<Mat<'_, T>> {
        let n = self.diagonal.len();
        self.vectors.as_ref().map(|(left, _)| left.block(0..n, 0..n))
    }

    /// The right vectors by columns, in the order of [`BidiagonalProblem::diagonal`].
    pub fn right(&self) -> Option<Mat<'_, T>> {
        let n = self.diagonal.len();
        self.vectors.as_ref().map(|(_, right)| right.block(0..n, 0..n))
    }

    /// Values only, as square roots of the eigenvalues of `Bᵀ B`. `false`, with the problem as it was, if the iteration
    /// does not converge.
    fn solve_squares(&mut self) -> bool {
        let n = self.diagonal.len();
        self.scratch.clear();
        let mut before = 0.0;
        for (d, e) in self.diagonal.iter().zip(&self.beside) {
            self.scratch.push(d * d + before);
            before = e * e;
        }
        self.scratch.extend(self.diagonal.iter().zip(&self.beside).map(|(d, e)| (d * e) * (d * e)));
        let (values, squares) = self.scratch.split_at_mut(n);
        // The error of a square is absolute: a tolerance of the values squared.
        if !values::eigenvalues(values, squares, f64::EPSILON) {
            return false;
        }
        for (to, value) in self.diagonal.iter_mut().zip(values) {
            *to = value.max(0.0).sqrt();
        }
        sort_all(&self.diagonal, &mut self.order);
        true
    }

    /// QR iteration. `false`, with the problem as it was, if it does not converge.
    fn solve_small(&mut self) -> bool {
        let n = self.diagonal.len();
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.diagonal);
        self.scratch.extend_from_slice(&self.beside);
        let vectors = &mut self.vectors;
        let tolerance = secular_tolerance::<T>();
        let done = qr_iteration(&mut self.diagonal, &mut self.beside, tolerance, |i, left, right| {
            if let Some((lefts, rights)) = vectors {
                lefts.rotate_whole(i, i + 1, left.cos, left.sin);
                rights.rotate_whole(i, i + 1, right.cos, right.sin);
            }
        });
        if !done {
            self.diagonal.copy_from_slice(&self.scratch[..n]);
            self.beside.copy_from_slice(&self.scratch[n..]);
            if let Some((left, right)) = vectors {
                left.set_identity();
                right.set_identity();
            }
            return false;
        }
        for (i, value) in self.diagonal.iter_mut().enumerate() {
            if *value < 0.0 {
                *value = -*value;
                if let Some((_, right)) = vectors {
                    let ld = right.ld;
                    right.columns[i * ld..][..n].iter_mut().for_each(|x| *x = -*x);
                }
            }
        }
        sort_all(&self.diagonal, &mut self.order);
        true
    }

    fn solve_block(&mut self, start: usize, rows: usize, wide: bool) {
        match rows {
            0 => {}
            1 => self.solve_row(start, wide),
            _ => {
                let block = Block { start, middle: start + rows / 2, end: start + rows, wide };
                self.solve_block(start, rows / 2, true);
                self.solve_block(block.middle + 1, rows - rows / 2 - 1, wide);
                self.join_blocks(block);
            }
        }
    }

    /// A block of one row: its norm, and the rotation that moves it to the first column.
    fn solve_row(&mut self, row: usize, wide: bool) {
        self.order[row] = row;
        let (d, e) = (self.diagonal[row], if wide { self.beside[row] } else { 0.0 });
        let length = d.hypot(e);
        self.diagonal[row] = length;
        let (cos, sin) = if length == 0.0 { (1.0, 0.0) } else { (d / length, e / length) };
        match (&mut self.vectors, wide) {
            (Some((_, right)), true) => right.rotate(row, row + 1, row..row + 2, cos, sin),
            (Some((_, right)), false) => right.columns[row * right.ld + row] = T::from_f64(cos),
            (None, true) => {
                (self.ends.first[row], self.ends.last[row]) = (cos, sin);
                (self.ends.first[row + 1], self.ends.last[row + 1]) = (-sin, cos);
            }
            (None, false) => (self.ends.first[row], self.ends.last[row]) = (cos, cos),
        }
    }

    fn join_blocks(&mut self, block: Block) {
        let Block { start, middle, end, wide } = block;
        let columns = end + usize::from(wide);
        let (d, e) = (self.diagonal[middle], self.beside[middle]);
        self.diagonal[middle] = 0.0;
        for i in start..columns {
            self.support[i] = if i <= middle { Support::Top } else { Support::Bottom };
            self.z[i] = match (&self.vectors, i <= middle) {
                (Some((_, right)), true) => d * right.at(middle, i).to_f64(),
                (Some((_, right)), false) => e * right.at(middle + 1, i).to_f64(),
                (None, true) => d * std::mem::take(&mut self.ends.last[i]),
                (None, false) => e * std::mem::take(&mut self.ends.first[i]),
            };
        }
        self.deflate(block, d.abs().max(if columns > middle + 1 { e.abs() } else { 0.0 }));
        let join = &mut self.join;
        let count = join.kept.len();
        self.secular.rho_inverse = 1.0;
        self.secular.poles.clear();
        self.secular.poles.extend(join.kept.iter().map(|&c| self.diagonal[c]));
        self.secular.z.clear();
        self.secular.z.extend(join.kept.iter().map(|&c| self.z[c]));
        self.secular.solve();
        // `solve` has replaced the coefficients by those of the computed roots.
        join.kept.iter().zip(&self.secular.z).for_each(|(&c, &z)| self.z[c] = z);
        join.group(|c| self.support[c], Some(middle));
        join.gather(&self.diagonal, &self.z);
        let secular = &mut self.secular;
        match &mut self.vectors {
            Some((left, right)) => {
                self.scratch.resize(count, 0.0);
                self.left_factors.resize(count * count, T::ZERO);
                self.right_factors.resize(count * count, T::ZERO);
                let lead = join.in_top - join.joint;
                let factors = self.left_factors.chunks_exact_mut(count).zip(self.right_factors.chunks_exact_mut(count));
                for (i, (left, right)) in factors.enumerate() {
                    let norm = secular.vector(i, &join.poles, &join.z, &mut self.scratch).sqrt();
                    narrow(&self.scratch, 1.0 / norm, right);
                    // The left vector is the right one times the poles, with -1 for the middle row.
                    self.scratch.iter_mut().zip(&join.poles).for_each(|(x, &pole)| *x *= pole);
                    self.scratch[lead] = -1.0;
                    let norm = dot(&self.scratch, &self.scratch).sqrt();
                    narrow(&self.scratch, 1.0 / norm, left);
                }
                let (top, bottom) = (start..middle + 1, middle + 1..columns);
                right.join(top.clone(), bottom, join, &self.right_factors, &mut self.packed);
                left.join(top, middle + 1..end, join, &self.left_factors, &mut self.packed);
            }
            None => self.ends.join(start, join, &mut self.scratch, |i, factor| {
                let norm = secular.vector(i, &join.poles, &join.z, factor).sqrt();
                factor.iter_mut().for_each(|x| *x /= norm);
            }),
        }
        // The roots come first, then the deflated values; both ascend.
        self.scratch.clear();
        self.scratch.extend((0..count).map(|i| secular.value(i)));
        self.scratch.extend(join.unchanged.iter().map(|&c| self.diagonal[c]));
        self.diagonal[start..end].copy_from_slice(&self.scratch);
        sort_joined(&self.diagonal, start..start + count, start + count..end, &mut self.sorted);
        self.order[start..end].copy_from_slice(&self.sorted);
    }

    /// Deflation: removes negligible coefficients, and one of two nearly equal poles after rotating their columns so
    /// that its coefficient vanishes. The pole of the middle row stays.
    fn deflate(&mut self, block: Block, row_size: f64) {
        let Block { start, middle, end, wide } = block;
        let columns = start..end + usize::from(wide);
        merge_sorted(&self.diagonal, &self.order[start..middle], &self.order[middle + 1..end], &mut self.sorted);
        let largest = self.sorted.last().map_or(0.0, |&c| self.diagonal[c]);
        let tolerance = 4.0 * T::EPSILON.to_f64() * largest.max(row_size);
        if wide {
            // A rotation combines the null vectors of both halves into one for the middle row and one for the block.
            let length = self.z[middle].hypot(self.z[end]);
            if length > 0.0 {
                let (cos, sin) = (self.z[middle] / length, self.z[end] / length);
                match &mut self.vectors {
                    Some((_, right)) => right.rotate(middle, end, columns.clone(), cos, sin),
                    None => self.ends.rotate(middle, end, cos, sin),
                }
            }
            self.z[middle] = length;
        }
        self.support[middle] = Support::Both;
        self.join.clear();
        self.join.kept.push(middle);
        let mut candidate: Option<usize> = None;
        for &c in &self.sorted {
            if self.z[c].abs() <= tolerance {
                self.join.unchanged.push(c);
                continue;
            }
            let Some(p) = candidate.replace(c) else { continue };
            if self.diagonal[c] - self.diagonal[p] > tolerance {
                self.join.kept.push(p);
                continue;
            }
            let length = self.z[p].hypot(self.z[c]);
            let (cos, sin) = (self.z[c] / length, -self.z[p] / length);
            (self.z[p], self.z[c]) = (0.0, length);
            self.support[c] = self.support[c].join(self.support[p]);
            match &mut self.vectors {
                Some((left, right)) => {
                    left.rotate(p, c, start..end, cos, sin);
                    right.rotate(p, c, columns.clone(), cos, sin);
                }
                None => self.ends.rotate(p, c, cos, sin),
            }
            self.join.unchanged.push(p);
        }
        self.join.kept.extend(candidate);
        // The equation needs a nonzero coefficient at the pole zero, and a gap between it and the next pole.
        if let Some(&next) = self.join.kept.get(1) {
            if self.z[middle].abs() <= tolerance {
                self.z[middle] = tolerance.copysign(self.z[middle]);
            }
            self.diagonal[next] = self.diagonal[next].max(0.5 * tolerance);
        }
    }
}

/// A rotation that takes `(f, g)` to `(r, 0)`.
struct Rotation {
    cos: f64,
    sin: f64,
}

impl Rotation {
    /// The rotation and `r`.
    fn new(f: f64, g: f64) -> (Self, f64) {
        if g == 0.0 {
            return (Self { cos: 1.0, sin: 0.0 }, f);
        }
        let squares = f * f + g * g;
        let r = if squares > 1e-280 { squares.sqrt() } else { f.hypot(g) };
        (Self { cos: f / r, sin: g / r }, r)
    }
}

/// The smaller singular value of the triangle `[f g; 0 h]`.
fn smaller_value(f: f64, g: f64, h: f64) -> f64 {
    let (f, g, h) = (f.abs(), g.abs(), h.abs());
    let (small, large) = (f.min(h), f.max(h));
    if small == 0.0 {
        return 0.0;
    }
    // The product of both values is f h, their squares' sum f² + g² + h².
    let (plus, minus) = ((large + small).hypot(g), (large - small).hypot(g));
    small * (large / (0.5 * (plus + minus)))
}

/// Golub and Kahan's implicit QR iteration on an upper bidiagonal matrix, with Demmel and Kahan's sweep where the shift
/// is negligible. The diagonal becomes the singular values, of either sign. `apply(i, left, right)` gets the rotations
/// of vectors `i` and `i + 1`. Entries below `tolerance` times their neighbours on the diagonal count as zero. `false`
/// if it does not converge.
fn qr_iteration(
    d: &mut [f64],
    e: &mut [f64],
    tolerance: f64,
    mut apply: impl FnMut(usize, &Rotation, &Rotation),
) -> bool {
    const EPSILON: f64 = f64::EPSILON;
    let mut high = d.len() - 1;
    for _ in 0..50 * d.len() {
        // The last block whose entries beside the diagonal all count.
        let mut low = high;
        loop {
            if low == 0 {
                if high == 0 {
                    return true;
                }
                break;
            }
            if e[low - 1].abs() > tolerance * (d[low - 1].abs() + d[low].abs()) {
                low -= 1;
                continue;
            }
            e[low - 1] = 0.0;
            if low < high {
                break;
            }
            high -= 1;
            low = high;
        }
        let shift = smaller_value(d[high - 1], e[high - 1], d[high]);
        let relative = shift / d[low].abs();
        if relative.is_finite() && relative * relative >= EPSILON {
            let mut f = (d[low].abs() - shift) * (1f64.copysign(d[low]) + shift / d[low]);
            let mut g = e[low];
            for i in low..high {
                let (right, r) = Rotation::new(f, g);
                if i > low {
                    e[i - 1] = r;
                }
                f = right.cos * d[i] + right.sin * e[i];
                e[i] = right.cos * e[i] - right.sin * d[i];
                g = right.sin * d[i + 1];
                d[i + 1] *= right.cos;
                let (left, r) = Rotation::new(f, g);
                d[i] = r;
                f = left.cos * e[i] + left.sin * d[i + 1];
                d[i + 1] = left.cos * d[i + 1] - left.sin * e[i];
                if i + 1 < high {
                    g = left.sin * e[i + 1];
                    e[i + 1] *= left.cos;
                }
                apply(i, &left, &right);
            }
            e[high - 1] = f;
            continue;
        }
        let mut left = Rotation { cos: 1.0, sin: 0.0 };
        let mut right_cos = 1.0;
        for i in low..high {
            let (right, r) = Rotation::new(d[i] * right_cos, e[i]);
            if i > low {
                e[i - 1] = left.sin * r;
            }
            let next = Rotation::new(left.cos * r, d[i + 1] * right.sin);
            (left, d[i]) = next;
            right_cos = right.cos;
            apply(i, &left, &right);
        }
        let last = d[high] * right_cos;
        d[high] = last * left.cos;
        e[high - 1] = last * left.sin;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_known_matrix() {
        // Ones on and beside the diagonal: the singular values are 2 cos(kπ / (2n + 1)).
        for n in [1, 2, 3, 8, 9, 50, 200] {
            for vectors in [false, true] {
                let mut problem = BidiagonalProblem::<f64>::new(n, vectors);
                problem.diagonal.fill(1.0);
                problem.beside.fill(1.0);
                problem.solve();
                for (k, &i) in problem.order.iter().enumerate() {
                    let expected = 2.0 * (std::f64::consts::PI * (n - k) as f64 / (2 * n + 1) as f64).cos();
                    let value = problem.diagonal[i];
                    assert!((value - expected).abs() < 2e-15, "{n}: {value} instead of {expected}");
                }
            }
        }
    }
}
