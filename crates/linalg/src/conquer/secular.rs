//! The secular equation `1/ρ + Σ zⱼ²/(pⱼ - λ) = 0`, whose roots are the eigenvalues of `diag(p) + ρ z zᵀ`.
//!
//! Roots and poles interlace. A root is represented by its distance from the nearer pole, so that its distances from
//! all poles, and with them the eigenvectors, have full relative precision. The eigenvectors are those of a `z` that
//! has the computed roots as its exact ones (Gu and Eisenstat, by Löwner's formula): they are orthogonal to working
//! precision however close the roots are. All of this is in f64; `n²` operations for a step of all roots, three or four
//! steps.

use crate::simd::kernels::{pole_distances, secular_products, secular_sums, secular_vector};

/// A secular equation, its roots, and the workspace.
#[derive(Default)]
pub struct Secular {
    /// The poles, ascending and distinct. If [`Secular::squared`], the equation has their squares.
    pub poles: Vec<f64>,
    /// Whether poles and roots enter the equation squared, as singular values do.
    squared: bool,
    /// The coefficients, all nonzero. [`Secular::solve`] replaces them by those that match its roots.
    pub z: Vec<f64>,
    /// `1/ρ`, positive.
    pub rho_inverse: f64,
    /// The relative precision of the roots' distances from their poles.
    tolerance: f64,
    /// For each root the index of its reference pole and the distance from it.
    roots: Vec<(usize, f64)>,
    squares: Vec<f64>,
    distances: Vec<f64>,
    gaps: Vec<f64>,
}

impl Secular {
    /// No equation yet.
    pub fn new(squared: bool, tolerance: f64) -> Self {
        Self { squared, tolerance, ..Self::default() }
    }

    /// Number of roots.
    pub fn len(&self) -> usize {
        self.poles.len()
    }

    /// Finds all roots.
    pub fn solve(&mut self) {
        let count = self.len();
        self.squares.clear();
        self.squares.extend(self.z.iter().map(|z| z * z));
        self.distances.resize(count, 0.0);
        self.gaps.resize(count, 0.0);
        self.roots.clear();
        for i in 0..count {
            let root = self.root(i);
            self.roots.push(root);
        }
        if count > 1 {
            self.restore_coefficients();
        }
    }

    /// Root `i`; the root itself and not its square if [`Secular::squared`].
    pub fn value(&self, i: usize) -> f64 {
        let (origin, distance) = self.roots[i];
        let pole = self.poles[origin];
        if distance == 0.0 {
            return pole;
        }
        if self.squared { pole + distance / (pole + (pole * pole + distance).max(0.0).sqrt()) } else { pole + distance }
    }

    /// Writes `zⱼ/(pⱼ - λᵢ)` for the given poles and coefficients, in any order, and returns the sum of the squares.
    pub fn vector(&mut self, i: usize, poles: &[f64], z: &[f64], out: &mut [f64]) -> f64 {
        if let [z] = z {
            // Also if `z` is zero or its square underflows.
            out[0] = 1f64.copysign(-*z);
            return 1.0;
        }
        let (origin, distance) = self.roots[i];
        pole_distances(poles, self.poles[origin], self.squared, &mut self.distances);
        secular_vector(z, &self.distances, distance, out)
    }

    /// The coefficients whose exact roots are the computed ones: `zⱼ² = Π (λᵢ - pⱼ) / Π (pᵢ - pⱼ)`, up to a common
    /// factor
    /// `1/ρ`.
    fn restore_coefficients(&mut self) {
        let products = &mut self.squares;
        products.fill(1.0);
        for (i, &(origin, distance)) in self.roots.iter().enumerate() {
            pole_distances(&self.poles, self.poles[origin], self.squared, &mut self.distances);
            pole_distances(&self.poles, self.poles[i], self.squared, &mut self.gaps);
            self.gaps[i] = 1.0;
            secular_products(products, &self.distances, distance, &self.gaps);
        }
        for (z, product) in self.z.iter_mut().zip(products) {
            *z = product.abs().sqrt().copysign(*z);
        }
    }

    /// Root `i`, between poles `i` and `i + 1` or beyond the last: the nearer pole and the distance from it.
    ///
    /// Every step replaces the equation by one with two poles and equal value and slope, as LAPACK's `laed4` does, and
    /// solves that. A bracket keeps the steps within bounds.
    fn root(&mut self, i: usize) -> (usize, f64) {
        let count = self.len();
        let squares = &self.squares;
        if count == 1 {
            return (0, squares[0] / self.rho_inverse);
        }
        let last = i + 1 == count;
        let (p, q) = if last { (i - 1, i) } else { (i, i + 1) };
        // The sign of the equation at the midpoint tells which half contains the root.
        let mut origin = i;
        pole_distances(&self.poles, self.poles[origin], self.squared, &mut self.distances);
        let width = if last { squares.iter().sum::<f64>() / self.rho_inverse } else { self.distances[q] };
        let middle = 0.5 * width;
        let at_middle = self.evaluate(p, middle);
        let mut rest = at_middle.value;
        rest -= squares[p] / (self.distances[p] - middle) + squares[q] / (self.distances[q] - middle);
        // Slightly more than half: the root may be the midpoint except for rounding.
        let margin = 1e-3 * middle;
        let (mut low, mut high) = match (at_middle.value < 0.0, last) {
            (false, _) => (0.0, middle + margin),
            (true, true) => (middle - margin, width + margin),
            (true, false) => {
                origin = q;
                pole_distances(&self.poles, self.poles[origin], self.squared, &mut self.distances);
                (-middle - margin, 0.0)
            }
        };
        let (dp, dq) = (self.distances[p], self.distances[q]);
        // The two nearest poles, with all other terms evaluated at the midpoint.
        let mut at =
            quadratic_root(rest, rest * (dp + dq) + squares[p] + squares[q], squares[p] * dq + squares[q] * dp, last);
        if !(low < at && at < high) {
            at = 0.5 * (low + high);
        }
        let (mut fixed_weight, mut previous) = (!last, f64::INFINITY);
        for _ in 0..60 {
            let now = self.evaluate(p, at);
            let (value, slope) = (now.value, now.left_slope + now.right_slope);
            let noise = 8.0 * (now.left.abs() + now.right.abs()) + self.rho_inverse + at.abs() * slope;
            if value.abs() <= self.tolerance * noise || value.is_nan() {
                break;
            }
            if value < 0.0 {
                low = at;
            } else {
                high = at;
            }
            if value.abs() > 0.1 * previous {
                fixed_weight = !fixed_weight && !last;
            }
            previous = value.abs();
            let (to_p, to_q) = (dp - at, dq - at);
            let rest = match (fixed_weight, origin == p) {
                (false, _) => value - to_p * now.left_slope - to_q * now.right_slope,
                (true, true) => value - to_q * slope - (dp - dq) * squares[p] / (to_p * to_p),
                (true, false) => value - to_p * slope - (dq - dp) * squares[q] / (to_q * to_q),
            };
            let linear = (to_p + to_q) * value - to_p * to_q * slope;
            let mut step = quadratic_root(rest, linear, to_p * to_q * value, last);
            if value * step >= 0.0 || step.is_nan() {
                step = -value / slope;
            }
            if !(low < at + step && at + step < high) {
                at = 0.5 * (low + high);
                continue;
            }
            at += step;
            // The steps converge at least quadratically: the error after a step this small is below the tolerance.
            let to_nearest = if origin == p { dp - at } else { dq - at };
            if step.abs() <= 0.1 * self.tolerance.sqrt() * to_nearest.abs() {
                break;
            }
        }
        (origin, at)
    }

    fn evaluate(&self, p: usize, at: f64) -> Evaluation {
        let (left, left_slope) = secular_sums(&self.distances[..=p], &self.squares[..=p], at);
        let (right, right_slope) = secular_sums(&self.distances[p + 1..], &self.squares[p + 1..], at);
        Evaluation { value: self.rho_inverse + left + right, left, right, left_slope, right_slope }
    }
}

/// The value at a point, split into the poles on either side.
struct Evaluation {
    value: f64,
    left: f64,
    right: f64,
    left_slope: f64,
    right_slope: f64,
}

/// A root of `c x² - a x + b = 0` without cancellation: the one between two poles, or beyond the second.
fn quadratic_root(c: f64, a: f64, b: f64, beyond: bool) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    match (beyond, a > 0.0) {
        (false, true) => 2.0 * b / (a + root),
        (false, false) => (a - root) / (2.0 * c),
        (true, true) => (a + root) / (2.0 * c),
        (true, false) => 2.0 * b / (a - root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_of_a_small_equation() {
        // diag(1, 2) + z zᵀ with z = (1, 1) is [2 1; 1 3].
        let mut secular = Secular {
            poles: vec![1.0, 2.0],
            z: vec![1.0, 1.0],
            rho_inverse: 1.0,
            tolerance: 1e-16,
            ..Secular::default()
        };
        secular.solve();
        let gap = 5f64.sqrt();
        assert!((secular.value(0) - (5.0 - gap) / 2.0).abs() < 1e-15);
        assert!((secular.value(1) - (5.0 + gap) / 2.0).abs() < 1e-15);
        assert!(secular.z.iter().all(|z| (z - 1.0).abs() < 1e-14));
    }

    #[test]
    fn close_poles_and_tiny_coefficients() {
        let poles: Vec<f64> = (0..40).map(|i| 1.0 + 1e-13 * f64::from(i * i)).collect();
        let z: Vec<f64> = (0..40).map(|i| 10f64.powi(-(i % 13))).collect();
        for squared in [false, true] {
            let mut secular = Secular {
                poles: poles.clone(),
                squared,
                z: z.clone(),
                rho_inverse: 1.0,
                tolerance: 1e-16,
                ..Secular::default()
            };
            secular.solve();
            for i in 0..40 {
                assert!(secular.value(i) >= poles[i] && (i == 39 || secular.value(i) <= poles[i + 1]));
            }
            // Eigenvectors are orthogonal although the roots agree to twelve digits.
            let coefficients = secular.z.clone();
            let vectors: Vec<Vec<f64>> = (0..40)
                .map(|i| {
                    let mut v = vec![0.0; 40];
                    let length = secular.vector(i, &poles, &coefficients, &mut v).sqrt();
                    v.iter_mut().for_each(|x| *x /= length);
                    v
                })
                .collect();
            for i in 0..40 {
                for j in 0..i {
                    let product: f64 = vectors[i].iter().zip(&vectors[j]).map(|(x, y)| x * y).sum();
                    assert!(product.abs() < 1e-13, "{i} {j}: {product:e}");
                }
            }
        }
    }
}
