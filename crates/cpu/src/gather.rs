//! Element-wise indexing along one dimension: gather, and scatter with its modes.

use crate::index::{FirstFault, Shared, out_of_bounds, read_index, with_size, wrap};
use crate::pool;
use crate::reduce::item::{Item, Wide, with_item};
use crate::reduce::plan;
use rushlight_core::backend::Scatter;
use rushlight_core::layout::Nest;
use rushlight_core::{DType, Dims, Operand, Result, View};

/// Elements a task should have at least.
const TASK: usize = 8 << 10;

/// `out[.., i, ..] = x[.., index[.., i, ..], ..]` along `dim`.
pub fn gather(x: View, dim: usize, index: View, out: View) -> Result<()> {
    let (size, [stride]) = plan::along(x.shape(), dim, [x.strides()]);
    // Without its own stride, the indexed dimension stays put and the index alone moves along it.
    let mut x_strides = Dims::from_slice(x.strides());
    if let Some(s) = x_strides.get_mut(dim) {
        *s = 0;
    }
    let nest = Nest::new(out.shape(), [out.strides(), index.strides(), &x_strides]);
    let run = nest.shape.last().copied().unwrap_or(1);
    let [out_step, index_step, x_step] = [0, 1, 2].map(|i| nest.strides[i].last().copied().unwrap_or(0));
    let indices = Shared::new(index.ptr().cast::<i64>());
    let fault = FirstFault::new();
    with_size!(x.dtype, U => {
        let (src, dst) = (Shared::new(x.ptr().cast::<U>()), Shared::new(out.ptr().cast::<U>()));
        pool::parallel_ranges(out.numel(), 16 << 10, |from, to| {
            let mut i = from;
            while i < to {
                let [out_at, index_at, x_at] = nest.offsets(i);
                let n = (run - i % run).min(to - i);
                for k in 0..n {
                    // SAFETY: positions lie within the views, and the index was just checked.
                    unsafe {
                        match wrap(read_index(indices.at(index_at + k * index_step)), size) {
                            Some(at) => *dst.at(out_at + k * out_step) = *src.at(x_at + k * x_step + at * stride),
                            None => fault.set(i + k),
                        }
                    }
                }
                i += n;
            }
        });
    });
    report(&fault, &nest, indices, dim, size)
}

/// The error of the first index found out of range, if any. The index tensor is the nest's second operand.
fn report<const N: usize>(
    fault: &FirstFault,
    nest: &Nest<N>,
    indices: Shared<i64>,
    dim: usize,
    size: usize,
) -> Result<()> {
    match fault.position() {
        None => Ok(()),
        Some(position) => {
            // SAFETY: the position lies within the index tensor.
            let index = unsafe { *indices.at(nest.offsets(position)[1]) };
            Err(out_of_bounds(index, dim, size))
        }
    }
}

/// What happens where a scatter hits.
trait Update<T>: 'static {
    fn update(old: T, new: T) -> T;
}

struct Replace;
impl<T> Update<T> for Replace {
    #[inline(always)]
    fn update(_: T, new: T) -> T {
        new
    }
}

macro_rules! updates {
    ($($name:ident $method:ident;)*) => {$(
        struct $name;
        impl<W: Wide> Update<W> for $name {
            #[inline(always)]
            fn update(old: W, new: W) -> W {
                old.$method(new)
            }
        }
    )*};
}
updates! { Add add; Mul mul; Max larger; Min smaller; }

/// The reverse of [`gather`]: `out[.., index[.., i, ..], ..] op= src[.., i, ..]`, in the order of `i`.
pub fn scatter(op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
    // Of truth values, the sum is "or" and the product "and".
    let op = match (op, out.dtype) {
        (Scatter::Add, DType::Bool) => Scatter::Max,
        (Scatter::Mul, DType::Bool) => Scatter::Min,
        (op, _) => op,
    };
    match op {
        Scatter::Set => with_item!(out.dtype, T => run::<T, T, Replace>(dim, index, src, out, |v| v, |v| v)),
        Scatter::Add => with_item!(out.dtype, T => wide::<T, Add>(dim, index, src, out)),
        Scatter::Mul => with_item!(out.dtype, T => wide::<T, Mul>(dim, index, src, out)),
        Scatter::Max => with_item!(out.dtype, T => wide::<T, Max>(dim, index, src, out)),
        Scatter::Min => with_item!(out.dtype, T => wide::<T, Min>(dim, index, src, out)),
    }
}

fn wide<T: Item, M: Update<T::Wide>>(dim: usize, index: View, src: Operand, out: View) -> Result<()> {
    run::<T, T::Wide, M>(dim, index, src, out, T::widen, T::narrow)
}

/// Lines along `dim` never write to one another's places, so they are shared out; within a line the order is kept.
fn run<T: Item, W: Copy + 'static, M: Update<W>>(
    dim: usize,
    index: View,
    src: Operand,
    out: View,
    widen: impl Fn(T) -> W + Sync + Copy,
    narrow: impl Fn(W) -> T + Sync + Copy,
) -> Result<()> {
    let (size, [stride]) = plan::along(out.shape(), dim, [out.strides()]);
    let mut scalar: T = if let Operand::Scalar(value) = src { value.to() } else { T::default() };
    let (values, src_strides) = match src {
        Operand::Tensor(view) => (view.ptr().cast::<T>(), Dims::from_slice(view.strides())),
        Operand::Scalar(_) => (&raw mut scalar, Dims::from_elem(0, index.shape().len())),
    };
    let strides = [out.strides(), index.strides(), &src_strides];
    let (n, [_, index_step, src_step]) = plan::along(index.shape(), dim, strides);
    let lines = plan::lines(index.shape(), dim, strides);
    let (indices, values, out) =
        (Shared::new(index.ptr().cast::<i64>()), Shared::new(values), Shared::new(out.ptr().cast::<T>()));
    // Half types keep a line in wide form, so that many small additions are not lost.
    let rounds = T::DTYPE.is_float() && size_of::<T>() < size_of::<W>() && n > 1;
    let fault = FirstFault::new();
    let count = if n == 0 { 0 } else { lines.numel() };
    // Neighbouring lines are worked on together, so that memory is read in order where they lie side by side.
    let group = if rounds || n == 1 { 1 } else { 64 };
    pool::parallel_ranges(count, TASK.div_ceil(n.max(1)).next_multiple_of(group), |from, to| {
        let mut line_out = Vec::new();
        for first in (from..to).step_by(group) {
            let mut starts = [[0; 3]; 64];
            let lines_here = group.min(to - first);
            for (l, start) in starts[..lines_here].iter_mut().enumerate() {
                *start = lines.offsets(first + l);
            }
            // SAFETY: positions lie within the views, and each index is checked before it is used.
            unsafe {
                if rounds {
                    let [out_at, ..] = starts[0];
                    line_out.clear();
                    line_out.extend((0..size).map(|i| widen(*out.at(out_at + i * stride))));
                }
                for i in 0..n {
                    for (l, &[out_at, index_at, src_at]) in starts[..lines_here].iter().enumerate() {
                        let Some(at) = wrap(read_index(indices.at(index_at + i * index_step)), size) else {
                            fault.set((first + l) * n + i);
                            continue;
                        };
                        let new = widen(*values.at(src_at + i * src_step));
                        if rounds {
                            line_out[at] = M::update(line_out[at], new);
                        } else {
                            let place = out.at(out_at + at * stride);
                            *place = narrow(M::update(widen(*place), new));
                        }
                    }
                }
                if rounds {
                    let [out_at, ..] = starts[0];
                    for (i, &v) in line_out.iter().enumerate() {
                        *out.at(out_at + i * stride) = narrow(v);
                    }
                }
            }
        }
    });
    match fault.position() {
        None => Ok(()),
        Some(position) => {
            let [_, index_at, _] = lines.offsets(position / n);
            // SAFETY: the position lies within the index tensor.
            let index = unsafe { *indices.at(index_at + position % n * index_step) };
            Err(out_of_bounds(index, dim, size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Array, Rng};
    use rushlight_core::{Element, ErrorKind, Layout, Scalar};

    /// Coordinates of a row-major position.
    fn coordinates(shape: &[usize], mut i: usize) -> Vec<usize> {
        let mut at = vec![0; shape.len()];
        for d in (0..shape.len()).rev() {
            at[d] = i % shape[d];
            i /= shape[d];
        }
        at
    }

    fn position(shape: &[usize], at: &[usize]) -> usize {
        shape.iter().zip(at).fold(0, |p, (&n, &i)| p * n + i)
    }

    fn indices(rng: &mut Rng, shape: &[usize], size: usize) -> Array {
        let n = shape.iter().product();
        let values = (0..n).map(|_| rng.below(2 * size) as i64 - size as i64).collect();
        Array::contiguous::<i64>(shape, values)
    }

    #[test]
    fn gather_and_scatter_match_plain_loops() {
        let mut rng = Rng(4);
        for _ in 0..60 {
            let rank = 1 + rng.below(3);
            let shape = rng.shape(rank, 6);
            let dim = rng.below(rank);
            let mut index_shape: Vec<usize> = shape.iter().map(|&n| 1 + rng.below(n)).collect();
            index_shape[dim] = 1 + rng.below(8);
            let index = indices(&mut rng, &index_shape, shape[dim]);
            let index_values = index.to_vec::<i64>();
            let target = |i: usize| {
                let mut at = coordinates(&index_shape, i);
                let wrapped = index_values[i].rem_euclid(shape[dim] as i64);
                at[dim] = wrapped as usize;
                position(&shape, &at)
            };
            for dtype in DType::ALL {
                let x = rng.array(&shape, dtype);
                let out = Array::zeros(&index_shape, dtype);
                gather(x.view(), dim, index.view(), out.view()).unwrap();
                let (from, got) = (x.to_f64(), out.to_f64());
                assert!((0..got.len()).all(|i| got[i] == from[target(i)]), "gather {dtype} {:?}", x.layout);

                for op in [Scatter::Set, Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min] {
                    let src = rng.array(&index_shape, dtype);
                    let out = rng.array(&shape, dtype);
                    let mut want = out.to_f64();
                    for (i, v) in src.to_f64().into_iter().enumerate() {
                        let place = &mut want[target(i)];
                        *place = match op {
                            Scatter::Set => v,
                            Scatter::Add => *place + v,
                            Scatter::Mul if dtype.is_float() => *place * v,
                            // Wraps at every step, as the dtype does.
                            Scatter::Mul => {
                                let product = (*place as i64).wrapping_mul(v as i64);
                                rushlight_core::with_dtype!(dtype, T => T::from_i64(product).to_f64())
                            }
                            Scatter::Max => place.max(v),
                            Scatter::Min => place.min(v),
                        };
                    }
                    scatter(op, dim, index.view(), Operand::Tensor(src.view()), out.view()).unwrap();
                    rushlight_core::with_dtype!(dtype, T => {
                        for (g, w) in out.to_vec::<T>().into_iter().zip(want) {
                            // Products overflow small integers and round in floats.
                            let w = if dtype.is_float() { T::from_f64(w) } else { T::from_i64(w as i64) };
                            let (g, w) = (g.to_f64(), w.to_f64());
                            assert!((g - w).abs() <= 0.02 * w.abs(), "{op:?} {dtype}: {g} for {w}");
                        }
                    });
                }
            }
        }
    }

    #[test]
    fn scalars_and_halves_and_faults() {
        let index = Array::contiguous(&[3], vec![0i64, 2, -1]);
        let out = Array::contiguous(&[4], vec![1i32; 4]);
        scatter(Scatter::Add, 0, index.view(), Operand::Scalar(Scalar::Int(5)), out.view()).unwrap();
        assert_eq!(out.to_vec::<i32>(), [6, 1, 6, 6]);
        // A thousand small additions are not rounded away one by one.
        let index = Array::over(vec![0i64], Layout::contiguous(&[1]).unwrap().expand(&[1000]).unwrap());
        let out = Array::contiguous(&[1], vec![half::bf16::from_f32(256.0)]);
        scatter(Scatter::Add, 0, index.view(), Operand::Scalar(Scalar::Float(0.25)), out.view()).unwrap();
        assert_eq!(out.to_f64(), [506.0]);

        let index = Array::contiguous(&[2], vec![1i64, 7]);
        let (x, out) = (Array::contiguous(&[5], vec![0f32; 5]), Array::zeros(&[2], DType::F32));
        let e = gather(x.view(), 0, index.view(), out.view()).unwrap_err();
        assert_eq!(
            (e.kind(), e.to_string().as_str()),
            (ErrorKind::Index, "index 7 is out of bounds for dimension 0 with size 5")
        );
        let e = scatter(Scatter::Set, 0, index.view(), Operand::Tensor(out.view()), x.view()).unwrap_err();
        assert_eq!(e.to_string(), "index 7 is out of bounds for dimension 0 with size 5");
        let none = Array::contiguous::<i64>(&[0], vec![]);
        let empty = Array::zeros(&[0], DType::F32);
        gather(x.view(), 0, none.view(), empty.view()).unwrap();
        scatter(Scatter::Add, 0, none.view(), Operand::Tensor(empty.view()), x.view()).unwrap();
    }
}
