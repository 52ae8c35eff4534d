//! The vector loops of the reductions to tridiagonal and bidiagonal form and of the secular equation.
//!
//! Vectors and columns used together have one length, a multiple of [`PAD`], and are padded with zeros, so no loop has
//! a remainder. Loops start at the register boundary at or below the first row in use.

use super::{PAD, Vector, vectorised};
use crate::real::Scalar;

vectorised! {
    /// The inner product of vectors of equal length.
    pub fn dot<T>(x: &[T], y: &[T]) -> T = dot_kernel;

    /// `y += factor * x`.
    pub fn axpy<T>(factor: T, x: &[T], y: &mut [T]) = axpy_kernel;

    /// Replaces columns `x` and `y` by `cos x + sin y` and `cos y - sin x`.
    pub fn rotate<T>(x: &mut [T], y: &mut [T], cos: T, sin: T) = rotate_kernel;

    /// One step of the reduction of a symmetric matrix, over the columns and rows from `first` on: subtracts `v wᵀ + w
    /// vᵀ` of the previous step and writes `y = A x`, in one pass over the lower triangle of `a`.
    ///
    /// `a` has `v.len()` columns of that length. The diagonal blocks, one register wide, hold both triangles. The step
    /// also writes to columns before `first` in the same block and to the elements of `y` before `first`; those values
    /// are meaningless. `x` is zero there.
    pub fn symmetric_step<T>(a: &mut [T], n: usize, first: usize, v: &[T], w: &[T], x: &[T], y: &mut [T])
        = symmetric_step_kernel;

    /// One step of the reduction to bidiagonal form, over columns `first..cols` and the rows from `first - 1` on:
    /// subtracts `v yᵀ + x uᵀ` of the previous step, and from the result, `A`, computes the products with the new left
    /// reflector `I - tau next nextᵀ`: `y = tau Aᵀ next`, the row `row = A[first - 1] - yᵀ`, and `z = A row`.
    ///
    /// The step is a single pass: a group of columns is still in the L1 cache when `z` needs it. Elements of `z` before
    /// `first` are meaningless.
    pub fn bidiagonal_step<T>(
        a: &mut [T], rows: usize, first: usize, cols: usize, v: &[T], x: &[T], u: &[T], next: &[T], tau: T,
        y: &mut [T], row: &mut [T], z: &mut [T],
    ) = bidiagonal_step_kernel;

    /// Applies the reflector `I - tau v vᵀ` to the last `v.len()` elements of the columns of `a`, which have `ld`
    /// elements each.
    pub fn reflect_columns<T>(a: &mut [T], ld: usize, v: &[T], tau: T) = reflect_columns_kernel;

    /// `Σ z²/(pole - at)` and `Σ z²/(pole - at)²`, the terms of the secular equation; `squares` are the `z²`.
    pub fn secular_sums<T>(poles: &[T], squares: &[T], at: T) -> (T, T) = secular_sums_kernel;

    /// The distances of poles from `origin`: `poles - origin`, or with `squared` `poles² - origin²` without
    /// cancellation.
    pub fn pole_distances<T>(poles: &[T], origin: T, squared: bool, out: &mut [T]) = pole_distances_kernel;

    /// `out = numbers / (poles - at)` and the sum of the squares of `out`.
    pub fn secular_vector<T>(numbers: &[T], poles: &[T], at: T, out: &mut [T]) -> T = secular_vector_kernel;

    /// `products *= (poles - at) / gaps`.
    pub fn secular_products<T>(products: &mut [T], poles: &[T], at: T, gaps: &[T]) = secular_products_kernel;
}

#[inline(always)]
fn dot_kernel<T: Scalar, V: Vector<T>>(x: &[T], y: &[T]) -> T {
    assert_eq!(x.len(), y.len());
    let (n, lanes) = (x.len(), V::LANES);
    let mut sums = [V::splat(T::ZERO); 4];
    let mut i = 0;
    // SAFETY: `i + 4 * lanes` and `i + lanes` are checked to be within both slices.
    unsafe {
        while i + 4 * lanes <= n {
            for (part, sum) in sums.iter_mut().enumerate() {
                let at = i + part * lanes;
                *sum = V::load(x.as_ptr().add(at)).mul_add(V::load(y.as_ptr().add(at)), *sum);
            }
            i += 4 * lanes;
        }
        while i + lanes <= n {
            sums[0] = V::load(x.as_ptr().add(i)).mul_add(V::load(y.as_ptr().add(i)), sums[0]);
            i += lanes;
        }
    }
    let mut sum = sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum();
    for (x, y) in x[i..].iter().zip(&y[i..]) {
        sum += *x * *y;
    }
    sum
}

#[inline(always)]
fn axpy_kernel<T: Scalar, V: Vector<T>>(factor: T, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len());
    let (n, lanes) = (x.len(), V::LANES);
    let factors = V::splat(factor);
    let mut i = 0;
    while i + lanes <= n {
        // SAFETY: `i + lanes` is within both slices.
        unsafe {
            let to = y.as_mut_ptr().add(i);
            V::load(x.as_ptr().add(i)).mul_add(factors, V::load(to)).store(to);
        }
        i += lanes;
    }
    for (x, y) in x[i..].iter().zip(&mut y[i..]) {
        *y += factor * *x;
    }
}

#[inline(always)]
fn rotate_kernel<T: Scalar, V: Vector<T>>(x: &mut [T], y: &mut [T], cos: T, sin: T) {
    assert_eq!(x.len(), y.len());
    let (n, lanes) = (x.len(), V::LANES);
    let (c, s) = (V::splat(cos), V::splat(sin));
    let mut i = 0;
    while i + lanes <= n {
        // SAFETY: `i + lanes` is within both slices.
        unsafe {
            let (px, py) = (x.as_mut_ptr().add(i), y.as_mut_ptr().add(i));
            let (vx, vy) = (V::load(px), V::load(py));
            vx.mul_add(c, vy.mul(s)).store(px);
            vx.neg_mul_add(s, vy.mul(c)).store(py);
        }
        i += lanes;
    }
    for (x, y) in x[i..].iter_mut().zip(&mut y[i..]) {
        (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
    }
}

/// Number of columns per pass; the vectors are loaded once for all of them.
const GROUP: usize = 4;

#[inline(always)]
fn symmetric_step_kernel<T: Scalar, V: Vector<T>>(
    a: &mut [T],
    n: usize,
    first: usize,
    v: &[T],
    w: &[T],
    x: &[T],
    y: &mut [T],
) {
    let (lanes, ld) = (V::LANES, v.len());
    assert!(ld.is_multiple_of(PAD) && n <= ld && a.len() == ld * ld && w.len() == ld && x.len() == ld && y.len() == ld);
    // The diagonal block is a register wide, or a group if that is wider.
    let block = lanes.max(GROUP);
    y.fill(T::ZERO);
    let (a, v, w, x, y) = (a.as_mut_ptr(), v.as_ptr(), w.as_ptr(), x.as_ptr(), y.as_mut_ptr());
    let mut column = first / GROUP * GROUP;
    while column < n {
        let top = column / block * block;
        // SAFETY: `column..column + GROUP` are columns of `a`, since `ld` is a multiple of `GROUP`; rows go up to `ld`
        // in whole registers; all vectors have `ld` elements.
        unsafe {
            let mut columns = [a; GROUP];
            // No closures here: the compiler would not compile them for this instruction set.
            let zero = V::splat(T::ZERO);
            let (mut vs, mut ws, mut xs) = ([zero; GROUP], [zero; GROUP], [zero; GROUP]);
            for c in 0..GROUP {
                columns[c] = a.add((column + c) * ld);
                vs[c] = V::splat(*v.add(column + c));
                ws[c] = V::splat(*w.add(column + c));
                xs[c] = V::splat(*x.add(column + c));
            }
            let mut dots = [V::splat(T::ZERO); GROUP];
            let mut r = top;
            while r < top + block {
                let (vr, wr) = (V::load(v.add(r)), V::load(w.add(r)));
                let mut yr = V::load(y.add(r));
                for c in 0..GROUP {
                    let value = wr.neg_mul_add(vs[c], vr.neg_mul_add(ws[c], V::load(columns[c].add(r))));
                    value.store(columns[c].add(r));
                    yr = value.mul_add(xs[c], yr);
                }
                yr.store(y.add(r));
                r += lanes;
            }
            while r < ld {
                let (vr, wr, xr) = (V::load(v.add(r)), V::load(w.add(r)), V::load(x.add(r)));
                let mut yr = V::load(y.add(r));
                for c in 0..GROUP {
                    let value = wr.neg_mul_add(vs[c], vr.neg_mul_add(ws[c], V::load(columns[c].add(r))));
                    value.store(columns[c].add(r));
                    yr = value.mul_add(xs[c], yr);
                    dots[c] = value.mul_add(xr, dots[c]);
                }
                yr.store(y.add(r));
                r += lanes;
            }
            for c in 0..GROUP {
                *y.add(column + c) += dots[c].sum();
            }
        }
        column += GROUP;
    }
}

#[inline(always)]
fn bidiagonal_step_kernel<T: Scalar, V: Vector<T>>(
    a: &mut [T],
    rows: usize,
    first: usize,
    cols: usize,
    v: &[T],
    x: &[T],
    u: &[T],
    next: &[T],
    tau: T,
    y: &mut [T],
    row: &mut [T],
    z: &mut [T],
) {
    let (ld, width) = (v.len(), u.len());
    assert!(ld.is_multiple_of(PAD) && rows <= ld && cols <= width && first > 0);
    assert!(a.len() >= ld * cols && x.len() == ld && next.len() == ld && z.len() == ld);
    assert!(y.len() == width && row.len() == width);
    z.fill(T::ZERO);
    let mut column = first;
    while column < cols {
        let pass = Pass { rows, first, column, v, x, u, next, tau };
        if column + GROUP <= cols {
            pass.run::<V, GROUP>(a, y, row, z);
            column += GROUP;
        } else {
            pass.run::<V, 1>(a, y, row, z);
            column += 1;
        }
    }
}

/// The operands of [`bidiagonal_step`] for a group of columns from `column` on.
struct Pass<'a, T> {
    rows: usize,
    first: usize,
    column: usize,
    v: &'a [T],
    x: &'a [T],
    u: &'a [T],
    next: &'a [T],
    tau: T,
}

impl<T: Scalar> Pass<'_, T> {
    #[inline(always)]
    fn run<V: Vector<T>, const N: usize>(&self, a: &mut [T], y: &mut [T], row: &mut [T], z: &mut [T]) {
        let (lanes, ld, column) = (V::LANES, self.v.len(), self.column);
        let start = (self.first - 1) / lanes * lanes;
        let end = self.rows.next_multiple_of(lanes);
        let group = &mut a[column * ld..(column + N) * ld];
        let mut columns = [group.as_mut_ptr(); N];
        let (v, x, next) = (self.v.as_ptr(), self.x.as_ptr(), self.next.as_ptr());
        let (mut ys, mut us) = ([V::splat(T::ZERO); N], [V::splat(T::ZERO); N]);
        for c in 0..N {
            columns[c] = group[c * ld..].as_mut_ptr();
            ys[c] = V::splat(y[column + c]);
            us[c] = V::splat(self.u[column + c]);
        }
        let mut dots = [V::splat(T::ZERO); N];
        let mut r = start;
        // SAFETY: rows go up to `end`, at most `ld`, in whole registers; the caller has checked that all vectors of
        // rows have `ld` elements. The columns do not overlap.
        unsafe {
            while r < end {
                let (vr, xr, nr) = (V::load(v.add(r)), V::load(x.add(r)), V::load(next.add(r)));
                for c in 0..N {
                    let value = xr.neg_mul_add(us[c], vr.neg_mul_add(ys[c], V::load(columns[c].add(r))));
                    value.store(columns[c].add(r));
                    dots[c] = value.mul_add(nr, dots[c]);
                }
                r += lanes;
            }
        }
        let mut factors = [V::splat(T::ZERO); N];
        for c in 0..N {
            y[column + c] = self.tau * dots[c].sum();
            // SAFETY: `first - 1` is a row.
            row[column + c] = unsafe { *columns[c].add(self.first - 1) } - y[column + c];
            factors[c] = V::splat(row[column + c]);
        }
        let z = z.as_mut_ptr();
        let mut r = start;
        // SAFETY: as above.
        unsafe {
            while r < end {
                let mut zr = V::load(z.add(r));
                for c in 0..N {
                    zr = V::load(columns[c].add(r)).mul_add(factors[c], zr);
                }
                zr.store(z.add(r));
                r += lanes;
            }
        }
    }
}

#[inline(always)]
fn reflect_columns_kernel<T: Scalar, V: Vector<T>>(a: &mut [T], ld: usize, v: &[T], tau: T) {
    assert!(v.len() <= ld);
    let mut groups = a.chunks_exact_mut((GROUP * ld).max(1));
    for group in &mut groups {
        reflect_group::<T, V, GROUP>(group, ld, v, tau);
    }
    for column in groups.into_remainder().chunks_exact_mut(ld) {
        reflect_group::<T, V, 1>(column, ld, v, tau);
    }
}

#[inline(always)]
fn reflect_group<T: Scalar, V: Vector<T>, const N: usize>(group: &mut [T], ld: usize, v: &[T], tau: T) {
    let (lanes, n) = (V::LANES, v.len());
    assert!(group.len() == N * ld && n <= ld);
    let mut columns = [group.as_mut_ptr(); N];
    for c in 0..N {
        columns[c] = group[c * ld + ld - n..].as_mut_ptr();
    }
    let whole = n / lanes * lanes;
    let mut dots = [V::splat(T::ZERO); N];
    let mut sums = [T::ZERO; N];
    let mut r = 0;
    // SAFETY: the columns have `n` elements from their pointers on and do not overlap; `whole <= n`.
    unsafe {
        while r < whole {
            let vr = V::load(v.as_ptr().add(r));
            for c in 0..N {
                dots[c] = V::load(columns[c].add(r)).mul_add(vr, dots[c]);
            }
            r += lanes;
        }
        for c in 0..N {
            sums[c] = dots[c].sum();
            for r in whole..n {
                sums[c] += *columns[c].add(r) * v[r];
            }
            sums[c] = tau * sums[c];
        }
        let mut factors = [V::splat(T::ZERO); N];
        for c in 0..N {
            factors[c] = V::splat(sums[c]);
        }
        let mut r = 0;
        while r < whole {
            let vr = V::load(v.as_ptr().add(r));
            for c in 0..N {
                let to = columns[c].add(r);
                vr.neg_mul_add(factors[c], V::load(to)).store(to);
            }
            r += lanes;
        }
        for c in 0..N {
            for r in whole..n {
                *columns[c].add(r) -= sums[c] * v[r];
            }
        }
    }
}

#[inline(always)]
fn secular_sums_kernel<T: Scalar, V: Vector<T>>(poles: &[T], squares: &[T], at: T) -> (T, T) {
    assert_eq!(poles.len(), squares.len());
    let (n, lanes) = (poles.len(), V::LANES);
    let point = V::splat(at);
    let one = V::splat(T::ONE);
    let (mut value, mut slope) = (V::splat(T::ZERO), V::splat(T::ZERO));
    let mut i = 0;
    while i + lanes <= n {
        // SAFETY: `i + lanes` is within both slices.
        unsafe {
            let reciprocal = one.div(V::load(poles.as_ptr().add(i)).sub(point));
            let term = V::load(squares.as_ptr().add(i)).mul(reciprocal);
            value = value.add(term);
            slope = term.mul_add(reciprocal, slope);
        }
        i += lanes;
    }
    let (mut value, mut slope) = (value.sum(), slope.sum());
    for (pole, square) in poles[i..].iter().zip(&squares[i..]) {
        let reciprocal = T::ONE / (*pole - at);
        value += *square * reciprocal;
        slope += *square * reciprocal * reciprocal;
    }
    (value, slope)
}

#[inline(always)]
fn secular_vector_kernel<T: Scalar, V: Vector<T>>(numbers: &[T], poles: &[T], at: T, out: &mut [T]) -> T {
    assert!(numbers.len() == poles.len() && out.len() == poles.len());
    let (n, lanes) = (poles.len(), V::LANES);
    let point = V::splat(at);
    let mut squares = V::splat(T::ZERO);
    let mut i = 0;
    while i + lanes <= n {
        // SAFETY: `i + lanes` is within the three slices.
        unsafe {
            let value = V::load(numbers.as_ptr().add(i)).div(V::load(poles.as_ptr().add(i)).sub(point));
            value.store(out.as_mut_ptr().add(i));
            squares = value.mul_add(value, squares);
        }
        i += lanes;
    }
    let mut squares = squares.sum();
    for j in i..n {
        out[j] = numbers[j] / (poles[j] - at);
        squares += out[j] * out[j];
    }
    squares
}

#[inline(always)]
fn secular_products_kernel<T: Scalar, V: Vector<T>>(products: &mut [T], poles: &[T], at: T, gaps: &[T]) {
    assert!(products.len() == poles.len() && gaps.len() == poles.len());
    let (n, lanes) = (poles.len(), V::LANES);
    let point = V::splat(at);
    let mut i = 0;
    while i + lanes <= n {
        // SAFETY: `i + lanes` is within the three slices.
        unsafe {
            let ratio = V::load(poles.as_ptr().add(i)).sub(point).div(V::load(gaps.as_ptr().add(i)));
            let to = products.as_mut_ptr().add(i);
            V::load(to).mul(ratio).store(to);
        }
        i += lanes;
    }
    for j in i..n {
        products[j] *= (poles[j] - at) / gaps[j];
    }
}

#[inline(always)]
fn pole_distances_kernel<T: Scalar, V: Vector<T>>(poles: &[T], origin: T, squared: bool, out: &mut [T]) {
    assert_eq!(poles.len(), out.len());
    let (n, lanes) = (poles.len(), V::LANES);
    // `(pole - origin) * (pole * weight + rest)`
    let (weight, rest) = if squared { (T::ONE, origin) } else { (T::ZERO, T::ONE) };
    let (origins, weights, rests) = (V::splat(origin), V::splat(weight), V::splat(rest));
    let mut i = 0;
    while i + lanes <= n {
        // SAFETY: `i + lanes` is within both slices.
        unsafe {
            let pole = V::load(poles.as_ptr().add(i));
            pole.sub(origins).mul(pole.mul_add(weights, rests)).store(out.as_mut_ptr().add(i));
        }
        i += lanes;
    }
    for j in i..n {
        out[j] = (poles[j] - origin) * (poles[j] * weight + rest);
    }
}
