//! What a call demands of the shapes and dtypes of its views: the contracts of the [table](super::table) that sizes
//! alone can show. Debug builds check every call, [`Program::verify`](crate::program::Program::verify) recorded ones.

use super::{Call, Complex as Pairs, MatMul, Operand, Shaped};
use crate::backend::spec::{Complex, Conv, Fft, Pool};
use crate::backend::{AttentionInputs, CrossEntropyInputs};
use crate::{DType, Error, Result};

/// Why a call does not keep its contract.
type Checked = std::result::Result<(), String>;

fn count(view: &impl Shaped) -> usize {
    view.sizes().iter().product()
}

/// One shape.
fn same(what: &str, view: &impl Shaped, sizes: &[usize]) -> Checked {
    match view.sizes() == sizes {
        true => Ok(()),
        false => Err(format!("{what} has shape {:?}, not {sizes:?}", view.sizes())),
    }
}

/// A number of elements, in any shape.
fn holds(what: &str, view: &impl Shaped, elements: usize) -> Checked {
    match count(view) == elements {
        true => Ok(()),
        false => Err(format!("{what} of shape {:?} has {} elements, not {elements}", view.sizes(), count(view))),
    }
}

fn maybe_holds(what: &str, view: &Option<impl Shaped>, elements: usize) -> Checked {
    view.as_ref().map_or(Ok(()), |view| holds(what, view, elements))
}

fn of(what: &str, view: &impl Shaped, dtype: DType) -> Checked {
    match view.element() == dtype {
        true => Ok(()),
        false => Err(format!("{what} is {}, not {dtype}", view.element())),
    }
}

fn tensor(what: &str, operand: &Operand<impl Shaped>, sizes: &[usize]) -> Checked {
    match operand {
        Operand::Tensor(view) => same(what, view, sizes),
        Operand::Scalar(_) => Ok(()),
    }
}

/// `sizes` with another size at `dim`.
fn with_size(sizes: &[usize], dim: usize, size: usize) -> std::result::Result<Vec<usize>, String> {
    let mut new = sizes.to_vec();
    *new.get_mut(dim).ok_or_else(|| format!("there is no dimension {dim} in {sizes:?}"))? = size;
    Ok(new)
}

/// The values and indices of a call along a dimension.
fn ranked<V: Shaped>(x: &V, dim: usize, size: usize, values: &V, indices: &V) -> Checked {
    let sizes = with_size(x.sizes(), dim, size)?;
    same("values", values, &sizes)?;
    same("indices", indices, &sizes)?;
    of("values", values, x.element())?;
    of("indices", indices, DType::I64)
}

fn product<V: Shaped>(c: &MatMul<V>) -> Checked {
    let (&[batch, m, k], &[_, _, n]) = (c.a.sizes(), c.b.sizes()) else {
        return Err(format!("a {:?} and b {:?} are not batches of matrices", c.a.sizes(), c.b.sizes()));
    };
    same("b", &c.b, &[batch, k, n])?;
    same("out", &c.out, &[batch, m, n])?;
    of("b", &c.b, c.a.element())?;
    maybe_holds("bias", &c.bias, n)
}

fn complex<V: Shaped>(c: &Pairs<V>) -> Checked {
    let (a, b) = (c.a.sizes(), c.b.sizes());
    match (c.op, a, b) {
        (Complex::Product, &[batch, m, k, 2], &[_, _, n, 2]) => {
            same("b", &c.b, &[batch, k, n, 2])?;
            same("out", &c.out, &[batch, m, n, 2])
        }
        (Complex::Product, ..) => Err(format!("a {a:?} and b {b:?} are not batches of complex matrices")),
        (Complex::Blocks, &[rows, n, 2], _) => same("out", &c.out, &[rows, 2, n, 2]),
        (Complex::Blocks, ..) => Err(format!("a {a:?} has no rows of complex numbers")),
        _ => [("a", &c.a), ("b", &c.b)].into_iter().try_for_each(|(what, v)| match count(v) {
            2 => Ok(()),
            _ => holds(what, v, count(&c.out)),
        }),
    }
}

fn convolution<V: Shaped>(spec: &Conv, x: &V, w: &V, y: &V) -> Checked {
    let (input, output): (usize, usize) = (spec.input.iter().product(), spec.output.iter().product());
    holds("the input", x, spec.batch * spec.in_channels * input)?;
    let window: usize = spec.in_channels / spec.groups.max(1) * spec.kernel.iter().product::<usize>();
    holds("the weight", w, spec.out_channels * window)?;
    holds("the output", y, spec.batch * spec.out_channels * output)
}

fn pooling<V: Shaped>(spec: &Pool, x: &V, y: &V) -> Checked {
    holds("the input", x, spec.planes * spec.input.iter().product::<usize>())?;
    holds("the output", y, spec.planes * spec.output.iter().product::<usize>())
}

/// The number of rows.
fn entropy<V: Shaped>(inputs: &CrossEntropyInputs<V>) -> std::result::Result<usize, String> {
    let &[rows, classes] = inputs.logits.sizes() else {
        return Err(format!("logits of shape {:?} are no matrix", inputs.logits.sizes()));
    };
    holds("target", &inputs.target, rows)?;
    of("target", &inputs.target, DType::I64)?;
    maybe_holds("weight", &inputs.weight, classes)?;
    Ok(rows)
}

/// The output's sizes.
fn attention<V: Shaped>(inputs: &AttentionInputs<V>) -> std::result::Result<[usize; 4], String> {
    let (q, k, v) = (inputs.q.sizes(), inputs.k.sizes(), inputs.v.sizes());
    let (&[batch, heads, l, d], &[_, kv_heads, s, _], &[_, _, _, dv]) = (q, k, v) else {
        return Err(format!("q {q:?}, k {k:?} and v {v:?} do not have four dimensions"));
    };
    same("k", &inputs.k, &[batch, kv_heads, s, d])?;
    same("v", &inputs.v, &[batch, kv_heads, s, dv])?;
    if heads > 0 && (kv_heads == 0 || heads % kv_heads != 0) {
        return Err(format!("{heads} heads cannot share {kv_heads}"));
    }
    inputs.mask.as_ref().map_or(Ok(()), |mask| same("mask", mask, &[batch, heads, l, s]))?;
    Ok([batch, heads, l, dv])
}

/// The shape that index tensors pick from `x`.
fn picked<'a, V: Shaped + 'a>(
    x: &[usize],
    indices: impl IntoIterator<Item = &'a V>,
) -> std::result::Result<Vec<usize>, String> {
    let indices: Vec<&V> = indices.into_iter().collect();
    let Some(first) = indices.first() else { return Ok(x.to_vec()) };
    for index in &indices {
        same("an index", *index, first.sizes())?;
        of("an index", *index, DType::I64)?;
    }
    let rest = x.get(indices.len()..).ok_or_else(|| format!("{} indices of {x:?}", indices.len()))?;
    Ok([first.sizes(), rest].concat())
}

impl<V: Shaped> Call<V> {
    /// An error if shapes or dtypes of views do not fit the call's family. Values of indices, strides and overlaps are
    /// not looked at; families whose sizes depend on values or on an engine's own layout are not checked.
    pub fn check(&self) -> Result<()> {
        self.fault().map_err(|what| Error::value(format!("engine call {}: {what}", self.op_name())))
    }

    fn fault(&self) -> Checked {
        match self {
            Call::Permutation(c) => of("out", &c.out, DType::I64),
            Call::Copy(c) => same("src", &c.src, c.out.sizes()),
            Call::Pointwise(c) => c.inputs.iter().try_for_each(|x| tensor("an input", x, c.out.sizes())),
            Call::PointwiseGrad(c) => c.values.iter().flatten().try_for_each(|x| tensor("a value", x, c.out.sizes())),
            Call::Select(c) => {
                of("condition", &c.condition, DType::Bool)?;
                same("condition", &c.condition, c.out.sizes())?;
                tensor("a", &c.a, c.out.sizes())?;
                tensor("b", &c.b, c.out.sizes())
            }
            Call::Dropout(c) => same("x", &c.x, c.out.sizes()),
            Call::Reduce(c) => {
                if c.reduced.len() != c.x.sizes().len() {
                    return Err(format!("{} marks for shape {:?}", c.reduced.len(), c.x.sizes()));
                }
                let size = |(&size, &reduced): (&usize, &bool)| if reduced { 1 } else { size };
                same("out", &c.out, &c.x.sizes().iter().zip(&c.reduced).map(size).collect::<Vec<_>>())
            }
            Call::ArgReduce(c) => ranked(&c.x, c.dim, 1, &c.values, &c.indices),
            Call::Kth(c) => ranked(&c.x, c.dim, 1, &c.values, &c.indices),
            Call::Sort(c) => ranked(&c.x, c.dim, c.x.sizes().get(c.dim).copied().unwrap_or(1), &c.values, &c.indices),
            Call::TopK(c) => {
                let k = c.values.sizes().get(c.dim).copied().unwrap_or(1);
                ranked(&c.x, c.dim, k, &c.values, &c.indices)
            }
            Call::Scan(c) => {
                same("out", &c.out, c.x.sizes())?;
                c.indices.as_ref().map_or(Ok(()), |indices| same("indices", indices, c.x.sizes()))
            }
            Call::SearchSorted(c) => same("out", &c.out, c.values.sizes()),
            Call::Histogram(c) => of("out", &c.out, DType::I64),
            Call::IntRange(c) => {
                of("x", &c.x, DType::I64)?;
                same("out", &c.out, &[2])
            }
            Call::Unique(c) => {
                for (name, out) in [("values", &c.values), ("inverse", &c.inverse), ("counts", &c.counts)] {
                    same(name, out, c.x.sizes())?;
                }
                of("inverse", &c.inverse, DType::I64)?;
                of("counts", &c.counts, DType::I64)?;
                of("count", &c.count, DType::I64)
            }
            Call::PadFrom(c) => {
                let (x, out) = (c.x.sizes(), c.out.sizes());
                let lead = x.len().checked_sub(c.sources.len()).ok_or("more sources than dimensions")?;
                let sizes: Vec<usize> = x[..lead].iter().copied().chain(c.sources.iter().map(Vec::len)).collect();
                if out != sizes {
                    return Err(format!("out has shape {out:?}, not {sizes:?}"));
                }
                let inside = |(&size, sources): (&usize, &Vec<usize>)| sources.iter().all(|&at| at < size);
                match x[lead..].iter().zip(c.sources.iter()).all(inside) || out.contains(&0) {
                    true => Ok(()),
                    false => Err("a source is outside of x".into()),
                }
            }
            Call::Flip(c) => {
                same("out", &c.out, c.x.sizes())?;
                match c.flipped.len() == c.x.sizes().len() {
                    true => Ok(()),
                    false => Err(format!("{} marks for shape {:?}", c.flipped.len(), c.x.sizes())),
                }
            }
            Call::Distances(c) => distances(&c.a, &c.b, &c.out),
            Call::Euclidean(c) => distances(&c.a, &c.b, &c.out),
            Call::Index(c) => same("out", &c.out, &picked(c.x.sizes(), &c.indices)?),
            Call::IndexPut(c) => same("values", &c.values, &picked(c.out.sizes(), &c.indices)?),
            Call::Gather(c) => {
                of("index", &c.index, DType::I64)?;
                same("index", &c.index, c.out.sizes())
            }
            Call::Scatter(c) => {
                of("index", &c.index, DType::I64)?;
                let fits = |sizes: &[usize]| {
                    sizes.len() == c.index.sizes().len() && sizes.iter().zip(c.index.sizes()).all(|(a, b)| a >= b)
                };
                match &c.src {
                    Operand::Tensor(src) if !fits(src.sizes()) => {
                        Err(format!("src {:?} is smaller than index {:?}", src.sizes(), c.index.sizes()))
                    }
                    _ => Ok(()),
                }
            }
            Call::NonZero(c) => {
                of("out", &c.out, DType::I64)?;
                same("out", &c.out, &[c.out.sizes().first().copied().unwrap_or(0), c.x.sizes().len()])
            }
            Call::Complex(c) => complex(c),
            Call::Fft(c) => {
                let (x, out) = (c.x.sizes(), c.out.sizes());
                let half = |sizes: &[usize]| match sizes {
                    [lead @ .., n] => Some([lead, &[n / 2 + 1, 2]].concat()),
                    [] => None,
                };
                let fits = match c.op {
                    Fft::Complex { .. } => x == out && x.last() == Some(&2),
                    Fft::Real => half(x).as_deref() == Some(out),
                    Fft::Hermitian => half(out).as_deref() == Some(x),
                };
                match fits && x.len() > c.dims {
                    true => Ok(()),
                    false => Err(format!("{:?} of {} dimensions from {x:?} to {out:?}", c.op, c.dims)),
                }
            }
            Call::MatMul(c) => product(c),
            Call::PackedMatMul(c) => {
                let (&[m, k], &[_, n]) = (c.a.sizes(), c.b.sizes()) else {
                    return Err(format!("a {:?} and b {:?} are not matrices", c.a.sizes(), c.b.sizes()));
                };
                same("b", &c.b, &[k, n])?;
                same("out", &c.out, &[m, n])?;
                maybe_holds("bias", &c.bias, n)
            }
            Call::MatMulGelu(c) => {
                product(&c.product)?;
                holds("kept", &c.kept, count(&c.product.out))
            }
            Call::MatMulGeluBackward(c) => {
                product(&c.product)?;
                holds("kept", &c.kept, count(&c.product.out))?;
                holds("sums", &c.sums, c.product.out.sizes()[2])
            }
            Call::ConvForward(c) => {
                convolution(&c.spec, &c.x, &c.w, &c.y)?;
                maybe_holds("bias", &c.bias, c.spec.out_channels)
            }
            Call::ConvPacked(c) => {
                convolution(&c.spec, &c.x, &c.w, &c.y)?;
                maybe_holds("bias", &c.bias, c.spec.out_channels)?;
                maybe_holds("addend", &c.addend, count(&c.y))
            }
            Call::ConvBackwardInput(c) => convolution(&c.spec, &c.dx, &c.w, &c.dy),
            Call::ConvBackwardWeight(c) => convolution(&c.spec, &c.x, &c.dw, &c.dy),
            Call::MaxPool(c) => {
                of("indices", &c.indices, DType::I64)?;
                holds("indices", &c.indices, count(&c.y))?;
                pooling(&c.spec, &c.x, &c.y)
            }
            Call::MaxPoolBackward(c) => {
                of("indices", &c.indices, DType::I64)?;
                holds("indices", &c.indices, count(&c.dy))?;
                pooling(&c.spec, &c.dx, &c.dy)
            }
            Call::AvgPool(c) => pooling(&c.spec, &c.x, &c.y),
            Call::AvgPoolBackward(c) => pooling(&c.spec, &c.dx, &c.dy),
            Call::Softmax(c) => {
                holds("x", &c.x, c.dims.iter().product())?;
                holds("y", &c.y, c.dims.iter().product())
            }
            Call::SoftmaxBackward(c) => {
                [&c.dy, &c.y, &c.dx].into_iter().try_for_each(|x| holds("a view", x, c.dims.iter().product()))
            }
            Call::RowNorm(c) => {
                let elements = c.spec.rows * c.spec.cols;
                holds("x", &c.x, elements)?;
                holds("y", &c.y, elements)?;
                maybe_holds("low", &c.low, elements)?;
                maybe_holds("weight", &c.weight, c.spec.cols)?;
                maybe_holds("bias", &c.bias, c.spec.cols)?;
                holds("rstd", &c.rstd, c.spec.rows)
            }
            Call::RowNormBackward(c) => {
                let elements = c.spec.rows * c.spec.cols;
                holds("dy", &c.dy, elements)?;
                holds("x", &c.x, elements)?;
                maybe_holds("so_far", &c.so_far, elements)?;
                maybe_holds("dx", &c.dx, elements)?;
                maybe_holds("low", &c.low, elements)?;
                maybe_holds("dweight", &c.dweight, c.spec.cols)?;
                maybe_holds("dbias", &c.dbias, c.spec.cols)
            }
            Call::BatchNorm(c) => {
                let elements = c.spec.batch * c.spec.channels * c.spec.space;
                holds("x", &c.x, elements)?;
                holds("y", &c.y, elements)?;
                maybe_holds("weight", &c.weight, c.spec.channels)?;
                maybe_holds("bias", &c.bias, c.spec.channels)?;
                holds("mean", &c.mean, c.spec.channels)?;
                holds("rstd", &c.rstd, c.spec.channels)
            }
            Call::BatchNormBackward(c) => {
                let elements = c.spec.batch * c.spec.channels * c.spec.space;
                holds("dy", &c.dy, elements)?;
                holds("x", &c.x, elements)?;
                maybe_holds("dx", &c.dx, elements)?;
                maybe_holds("dweight", &c.dweight, c.spec.channels)?;
                maybe_holds("dbias", &c.dbias, c.spec.channels)
            }
            Call::CrossEntropy(c) => {
                let rows = entropy(&c.of)?;
                [&c.loss, &c.row_weight, &c.lse].into_iter().try_for_each(|x| holds("a result", x, rows))
            }
            Call::CrossEntropyBackward(c) => {
                let rows = entropy(&c.of)?;
                holds("lse", &c.lse, rows)?;
                holds("dloss", &c.dloss, rows)?;
                holds("dlogits", &c.dlogits, count(&c.of.logits))
            }
            Call::Attention(c) => {
                let sizes = attention(&c.of)?;
                same("out", &c.out, &sizes)?;
                holds("lse", &c.lse, sizes[..3].iter().product())
            }
            Call::AttentionBackward(c) => {
                let sizes = attention(&c.of)?;
                same("out", &c.out, &sizes)?;
                same("dout", &c.dout, &sizes)?;
                same("dq", &c.dq, c.of.q.sizes())?;
                same("dk", &c.dk, c.of.k.sizes())?;
                same("dv", &c.dv, c.of.v.sizes())
            }
            Call::LstmCell(c) => {
                holds("gates", &c.gates, 4 * count(&c.before))?;
                holds("c", &c.c, count(&c.before))?;
                holds("h", &c.h, count(&c.before))
            }
            Call::LstmCellBackward(c) => {
                holds("gates", &c.gates, 4 * count(&c.before))?;
                holds("dgates", &c.dgates, 4 * count(&c.before))?;
                holds("dc", &c.dc, count(&c.before))
            }
            Call::Update(c) => c.updates.iter().try_for_each(|update| {
                holds("grad", &update.grad, count(&update.param))?;
                update.state.iter().flatten().try_for_each(|state| holds("state", state, count(&update.param)))
            }),
            Call::ForeachNorm(c) => holds("out", &c.out, 1),
            Call::ForeachCopy(c) => {
                if c.from.len() != c.to.len() {
                    return Err(format!("{} tensors to {}", c.from.len(), c.to.len()));
                }
                c.from.iter().zip(&c.to).try_for_each(|(from, to)| holds("a copy", to, count(from)))
            }
            _ => Ok(()),
        }
    }
}

fn distances<V: Shaped>(a: &V, b: &V, out: &V) -> Checked {
    let (&[batch, n, size], &[_, m, _]) = (a.sizes(), b.sizes()) else {
        return Err(format!("a {:?} and b {:?} are not batches of rows", a.sizes(), b.sizes()));
    };
    same("b", b, &[batch, m, size])?;
    same("out", out, &[batch, n, m])
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::Layout;
    use crate::program::Slot;

    fn view(sizes: &[usize], dtype: DType) -> Slot {
        Slot { buffer: 0, layout: Layout::contiguous(sizes).unwrap(), dtype }
    }

    fn error(call: impl Into<Call<Slot>>) -> String {
        call.into().check().unwrap_err().to_string()
    }

    #[test]
    fn calls_that_do_not_fit_are_named() {
        let f = |sizes: &[usize]| view(sizes, DType::F32);
        let product = MatMul {
            alpha: 1.0,
            beta: 0.0,
            activation: Default::default(),
            a: f(&[1, 2, 3]),
            b: f(&[1, 3, 4]),
            bias: None,
            out: f(&[1, 2, 4]),
        };
        assert!(Call::from(product.clone()).check().is_ok());
        let wrong = MatMul { out: f(&[1, 4, 2]), ..product.clone() };
        assert_eq!(error(wrong), "engine call matmul: out has shape [1, 4, 2], not [1, 2, 4]");
        assert!(error(MatMul { bias: Some(f(&[3])), ..product }).contains("bias of shape [3] has 3 elements, not 4"));
        assert!(error(Copy { src: f(&[2]), out: f(&[3]) }).contains("copy: src has shape [2], not [3]"));
        let condition = view(&[2], DType::U8);
        let select = Select { condition, a: Operand::Tensor(f(&[2])), b: Operand::Scalar(0.0.into()), out: f(&[2]) };
        assert!(error(select).contains("condition is uint8, not bool"));
        let index = Index { x: f(&[5, 7]), indices: [view(&[3], DType::I64)].into_iter().collect(), out: f(&[3, 6]) };
        assert!(error(index).contains("out has shape [3, 6], not [3, 7]"));
        let sort = Sort { dim: 1, descending: false, x: f(&[2, 3]), values: f(&[2, 3]), indices: f(&[2, 3]) };
        assert!(error(sort).contains("indices is float32, not int64"));
    }
}
