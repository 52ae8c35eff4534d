//! Eigenvalues and eigenvectors of symmetric tridiagonal matrices.
//!
//! Cuppen's method: without the entry `e` between its halves, and `|e|` taken from the two numbers on the diagonal
//! beside it, the matrix is block-diagonal; what is missing has rank one. Small blocks go to QL iteration.

use super::*;

/// Numbers beside ones whose squares would be subnormal.
const VANISHING: f64 = 1e-140;

/// Blocks up to this size are solved by QL iteration.
const LEAF: usize = 24;

/// A problem of one size, with the memory to solve it and the solution.
pub struct TridiagonalProblem<T> {
    /// The diagonal; after [`TridiagonalProblem::solve`] the eigenvalues, in no order.
    pub diagonal: Vec<f64>,
    /// The entries beside the diagonal, and one more.
    pub beside: Vec<f64>,
    /// The eigenvalues' indices, ascending by value, after [`TridiagonalProblem::solve`].
    pub order: Vec<usize>,
    /// The eigenvectors; none if only values are wanted.
    vectors: Option<Basis<T>>,
    ends: Ends,
    z: Vec<f64>,
    support: Vec<Support>,
    sorted: Vec<usize>,
    join: Join,
    secular: Secular,
    factors: Vec<T>,
    packed: Vec<T>,
    scratch: Vec<f64>,
}

impl<T: Scalar> TridiagonalProblem<T> {
    pub fn new(n: usize, vectors: bool) -> Self {
        Self {
            diagonal: vec![0.0; n],
            beside: vec![0.0; n],
            order: vec![0; n],
            vectors: vectors.then(|| Basis::new(n)),
            ends: Ends::new(if vectors { 0 } else { n }),
            z: vec![0.0; n],
            support: vec![Support::Top; n],
            sorted: Vec::new(),
            join: Join::default(),
            secular: Secular::new(false, secular_tolerance::<T>()),
            factors: Vec::new(),
            packed: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Solves the problem that [`TridiagonalProblem::diagonal`] and [`TridiagonalProblem::beside`] hold. `false` if QL
    /// iteration does not converge.
    pub fn solve(&mut self) -> bool {
        if let Some(vectors) = &mut self.vectors {
            vectors.set_identity();
        }
        let n = self.diagonal.len();
        self.beside[n - 1] = 0.0;
        let scale = normalise(&mut self.diagonal, &mut self.beside);
        let done =
            if self.vectors.is_none() && n <= values::MAX_ROWS { self.solve_values() } else { self.solve_block(0, n) };
        self.diagonal.iter_mut().for_each(|x| *x *= scale);
        done
    }

    /// The eigenvectors as padded columns.
    pub fn padded_vectors_mut(&mut self) -> &mut [T] {
        self.vectors.as_mut().map_or(&mut [], |vectors| &mut vectors.columns)
    }

    /// The eigenvectors by columns, in the order of [`TridiagonalProblem::diagonal`].
    pub fn vectors_mut(&mut self) -> Option<MatMut<'_, T>> {
        let n = self.diagonal.len();
        self.vectors.as_mut().map(|vectors| vectors.block_mut(0..n, 0..n))
    }

    /// Column `i` of the eigenvectors.
    pub fn vector(&self, i: usize) -> &[T] {
        self.vectors.as_ref().map_or(&[], |vectors| vectors.column(i, 0..self.diagonal.len()))
    }

    /// Values only, without divide and conquer.
    fn solve_values(&mut self) -> bool {
        self.beside.iter_mut().for_each(|x| *x *= *x);
        let done = values::eigenvalues(&mut self.diagonal, &mut self.beside, secular_tolerance::<T>());
        sort_all(&self.diagonal, &mut self.order);
        done
    }

    fn solve_block(&mut self, start: usize, size: usize) -> bool {
        if size <= LEAF {
            return self.solve_leaf(start, size);
        }
        let upper = size / 2;
        let middle = start + upper;
        let rho = self.beside[middle - 1].abs();
        self.diagonal[middle - 1] -= rho;
        self.diagonal[middle] -= rho;
        let sign = 1f64.copysign(self.beside[middle - 1]);
        if !(self.solve_block(start, upper) && self.solve_block(middle, size - upper)) {
            return false;
        }
        self.join_blocks(start, middle, start + size, rho, sign);
        true
    }

    fn solve_leaf(&mut self, start: usize, size: usize) -> bool {
        let range = start..start + size;
        let (vectors, ends) = (&mut self.vectors, &mut self.ends);
        if vectors.is_none() {
            ends.first[range.clone()].fill(0.0);
            ends.last[range.clone()].fill(0.0);
            ends.first[start] = 1.0;
            ends.last[start + size - 1] = 1.0;
        }
        let whole = size == self.order.len();
        let (diagonal, beside) = (&mut self.diagonal[range.clone()], &mut self.beside[range.clone()]);
        let done = ql_iteration(diagonal, beside, secular_tolerance::<T>(), |i, cos, sin| {
            let (x, y) = (start + i + 1, start + i);
            match vectors {
                Some(vectors) if whole => vectors.rotate_whole(x, y, cos, sin),
                Some(vectors) => vectors.rotate(x, y, range.clone(), cos, sin),
                None => ends.rotate(x, y, cos, sin),
            }
        });
        let order = &mut self.order[range.clone()];
        order.iter_mut().zip(range).for_each(|(order, i)| *order = i);
        let values = &self.diagonal;
        order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
        done
    }

    /// Joins the solutions of `start..middle` and `middle..end`, which `rho z zᵀ` connects.
    fn join_blocks(&mut self, start: usize, middle: usize, end: usize, rho: f64, sign: f64) {
        // z is the last row of the upper and the first of the lower block, normalised.
        let scale = std::f64::consts::FRAC_1_SQRT_2;
        let rho = 2.0 * rho;
        for i in start..end {
            self.support[i] = if i < middle { Support::Top } else { Support::Bottom };
            self.z[i] = match (&self.vectors, i < middle) {
                (Some(vectors), true) => scale * vectors.at(middle - 1, i).to_f64(),
                (Some(vectors), false) => scale * sign * vectors.at(middle, i).to_f64(),
                (None, true) => scale * std::mem::take(&mut self.ends.last[i]),
                (None, false) => scale * sign * std::mem::take(&mut self.ends.first[i]),
            };
        }
        merge_sorted(&self.diagonal, &self.order[start..middle], &self.order[middle..end], &mut self.sorted);
        self.deflate(start..end, rho);
        let join = &mut self.join;
        self.secular.rho_inverse = 1.0 / rho;
        self.secular.poles.clear();
        self.secular.poles.extend(join.kept.iter().map(|&c| self.diagonal[c]));
        self.secular.z.clear();
        self.secular.z.extend(join.kept.iter().map(|&c| self.z[c]));
        self.secular.solve();
        // The coefficients are now those of the roots.
        join.kept.iter().zip(&self.secular.z).for_each(|(&c, &z)| self.z[c] = z);
        join.group(|c| self.support[c], None);
        join.gather(&self.diagonal, &self.z);
        let count = join.kept.len();
        let secular = &mut self.secular;
        match &mut self.vectors {
            Some(vectors) => {
                self.scratch.resize(count, 0.0);
                self.factors.resize(count * count, T::ZERO);
                for (i, factor) in self.factors.chunks_exact_mut(count.max(1)).enumerate() {
                    let norm = secular.vector(i, &join.poles, &join.z, &mut self.scratch).sqrt();
                    narrow(&self.scratch, 1.0 / norm, factor);
                }
                vectors.join(start..middle, middle..end, join, &self.factors, &mut self.packed);
            }
            None => self.ends.join(start, join, &mut self.scratch, |i, factor| {
                let norm = secular.vector(i, &join.poles, &join.z, factor).sqrt();
                factor.iter_mut().for_each(|x| *x /= norm);
            }),
        }
        // The roots come first, then what was left alone; both ascend.
        self.scratch.clear();
        self.scratch.extend((0..count).map(|i| secular.value(i)));
        self.scratch.extend(join.unchanged.iter().map(|&c| self.diagonal[c]));
        self.diagonal[start..end].copy_from_slice(&self.scratch);
        sort_joined(&self.diagonal, start..start + count, start + count..end, &mut self.sorted);
        self.order[start..end].copy_from_slice(&self.sorted);
    }

    /// Leaves out what needs no joining: coefficients that are negligible, and one of two poles that are as good as
    /// equal, whose columns are rotated so that its coefficient vanishes.
    fn deflate(&mut self, range: Range<usize>, rho: f64) {
        let largest = |values: &[f64]| values[range.clone()].iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let tolerance = 4.0 * T::EPSILON.to_f64() * largest(&self.diagonal).max(largest(&self.z));
        self.join.clear();
        let mut candidate: Option<usize> = None;
        for &c in &self.sorted {
            if rho * self.z[c].abs() <= tolerance {
                self.join.unchanged.push(c);
                continue;
            }
            let Some(p) = candidate.replace(c) else { continue };
            let length = self.z[p].hypot(self.z[c]);
            let (cos, sin) = (self.z[c] / length, -self.z[p] / length);
            let gap = self.diagonal[c] - self.diagonal[p];
            if (gap * cos * sin).abs() > tolerance {
                self.join.kept.push(p);
                continue;
            }
            (self.z[p], self.z[c]) = (0.0, length);
            self.support[c] = self.support[c].join(self.support[p]);
            match &mut self.vectors {
                Some(vectors) => vectors.rotate(p, c, range.clone(), cos, sin),
                None => self.ends.rotate(p, c, cos, sin),
            }
            let (dp, dc) = (self.diagonal[p], self.diagonal[c]);
            self.diagonal[p] = dp * cos * cos + dc * sin * sin;
            self.diagonal[c] = dp * sin * sin + dc * cos * cos;
            self.join.unchanged.push(p);
        }
        self.join.kept.extend(candidate);
    }
}

/// Turns the diagonal of a symmetric tridiagonal matrix into its eigenvalues by QL iteration with implicit shifts.
/// `beside` holds the entries next to the diagonal, and one more. Every rotation goes to `rotate(i, cos, sin)`, which
/// acts on columns `i + 1` and `i` of the vectors. Entries below `tolerance` times their neighbours on the diagonal
/// count as zero. `false` if it does not converge.
///
/// The largest number is near one, and a rotation whose lengths would not be precise counts as none.
pub fn ql_iteration(
    diagonal: &mut [f64],
    beside: &mut [f64],
    tolerance: f64,
    mut rotate: impl FnMut(usize, f64, f64),
) -> bool {
    let n = diagonal.len();
    // LAPACK's allowance; about two sweeps per eigenvalue are usual.
    let mut sweeps_left = 30 * n;
    let mut top = 0;
    while top < n {
        // The block from `top` on ends where the matrix falls apart.
        let negligible = |i: usize| {
            let scale = (diagonal[i].abs() * diagonal[i + 1].abs()).sqrt();
            beside[i].abs() <= VANISHING + tolerance * scale
        };
        let end = (top..n - 1).find(|&i| negligible(i)).unwrap_or(n - 1);
        if end == top {
            top += 1;
            continue;
        }
        if sweeps_left == 0 {
            return false;
        }
        sweeps_left -= 1;
        // Wilkinson's shift: the eigenvalue of the leading 2x2 block that is nearer to its first entry.
        let half_gap = (diagonal[top + 1] - diagonal[top]) / (2.0 * beside[top]);
        let radius = (half_gap * half_gap + 1.0).sqrt();
        let away = if half_gap < 0.0 { half_gap - radius } else { half_gap + radius };
        let mut chase = diagonal[end] - diagonal[top] + beside[top] / away;
        let (mut sin, mut cos, mut carried) = (1.0, 1.0, 0.0);
        let mut split = false;
        for i in (top..end).rev() {
            let (bulge, kept) = (sin * beside[i], cos * beside[i]);
            let length = (bulge * bulge + chase * chase).sqrt();
            beside[i + 1] = length;
            if length < VANISHING {
                // The rotation vanished: the block has split here by itself.
                beside[i + 1] = 0.0;
                diagonal[i + 1] -= carried;
                split = true;
                break;
            }
            sin = bulge / length;
            cos = chase / length;
            let base = diagonal[i + 1] - carried;
            let turned = (diagonal[i] - base) * sin + 2.0 * cos * kept;
            carried = sin * turned;
            diagonal[i + 1] = base + carried;
            chase = cos * turned - kept;
            rotate(i, cos, sin);
        }
        if !split {
            diagonal[top] -= carried;
            beside[top] = chase;
        }
        beside[end] = 0.0;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(diagonal: &[f64], beside: &[f64], vectors: bool) -> Vec<f64> {
        let mut problem = TridiagonalProblem::<f64>::new(diagonal.len(), vectors);
        problem.diagonal.copy_from_slice(diagonal);
        problem.beside[..beside.len()].copy_from_slice(beside);
        assert!(problem.solve());
        problem.order.iter().map(|&i| problem.diagonal[i]).collect()
    }

    #[test]
    fn values_of_a_known_matrix() {
        // Zeros on the diagonal and ones beside it: the eigenvalues are 2 cos(kπ / (n + 1)).
        for n in [1, 2, 3, 24, 25, 50, 200] {
            for vectors in [false, true] {
                let found = values(&vec![0.0; n], &vec![1.0; n - 1], vectors);
                for (k, value) in found.iter().enumerate() {
                    let expected = 2.0 * (std::f64::consts::PI * (n - k) as f64 / (n + 1) as f64).cos();
                    assert!((value - expected).abs() < 4e-15, "{n}: {value} instead of {expected}");
                }
            }
        }
    }

    #[test]
    fn values_of_matrices_that_fall_apart() {
        for (value, expected) in values(&[3.0, 1.0, 2.0, 2.0], &[0.0, 0.0, 1.0], true).iter().zip([1.0, 1.0, 3.0, 3.0])
        {
            assert!((value - expected).abs() < 1e-14);
        }
        for n in [5, 100] {
            assert_eq!(values(&vec![0.0; n], &vec![0.0; n - 1], true), vec![0.0; n]);
            assert_eq!(values(&vec![7.0; n], &vec![0.0; n - 1], false), vec![7.0; n]);
        }
    }
}
