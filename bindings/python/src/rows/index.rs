//! Indexing, scatter, search, sort and scans.

use crate::rows;
use crate::value::{Out, size};
use rushlight_core::{DType, Error, ErrorKind, Result, Scalar};
use rushlight_tensor::{Arg, PadMode, ScatterReduce, Tensor};

fn pair(found: (Tensor, Tensor)) -> Out {
    Out::Named("values indices", vec![found.0, found.1])
}

/// PyTorch raises `RuntimeError` for an index value out of bounds in `gather` and `scatter`, `IndexError` for a
/// dimension out of range.
fn in_bounds<T>(found: Result<T>) -> Result<T> {
    found.map_err(|e| match e.kind() {
        ErrorKind::Index if e.to_string().contains("out of bounds") => Error::value(e.to_string()),
        _ => e,
    })
}

/// The tensor, which takes a complex number only if it is complex.
fn not_complex<'a>(call: &str, input: &'a Tensor, value: &Arg<'_>) -> Result<&'a Tensor> {
    match value {
        Arg::Scalar(Scalar::Complex(..)) if !input.dtype().is_complex() => {
            Err(Error::value(format!("{call}(): Converting complex Scalar to non-complex type is not supported")))
        }
        _ => Ok(input),
    }
}

fn dense_only(sparse_grad: bool) -> Result<()> {
    match sparse_grad {
        false => Ok(()),
        true => Err(Error::unsupported("gather: sparse gradients are not supported; use sparse_grad=False")),
    }
}

fn reduction(name: &str) -> Result<ScatterReduce> {
    Ok(match name {
        "sum" | "add" => ScatterReduce::Sum,
        "prod" | "multiply" => ScatterReduce::Prod,
        "mean" => ScatterReduce::Mean,
        "amax" => ScatterReduce::Amax,
        "amin" => ScatterReduce::Amin,
        other => {
            return Err(Error::value(format!("reduce argument must be sum, prod, mean, amax or amin, got {other}")));
        }
    })
}

/// `scatter` with the older `reduce=` argument.
fn scatter(input: &Tensor, dim: isize, index: &Tensor, source: Arg, reduce: Option<&str>) -> Result<Tensor> {
    let Some(reduce) = reduce else { return input.scatter(dim, index, source) };
    let reduce = reduction(reduce)?;
    match source {
        Arg::Tensor(t) => input.scatter_reduce(dim, index, t, reduce, true),
        Arg::Scalar(s) => {
            let source = Tensor::full_with(index.shape(), s, (input.dtype(), input.device()))?;
            input.scatter_reduce(dim, index, &source, reduce, true)
        }
    }
}

fn scatter_(input: &Tensor, dim: isize, index: &Tensor, source: Arg, reduce: Option<&str>) -> Result<Out> {
    match reduce {
        None => input.scatter_(dim, index, source)?,
        Some(_) => input.copy_(&scatter(input, dim, index, source, reduce)?)?,
    };
    Ok(Out::First)
}

fn unique(found: rushlight_tensor::Unique, inverse: bool, counts: bool) -> Out {
    let mut out = vec![found.values];
    if inverse {
        out.push(found.inverse);
    }
    if counts {
        out.push(found.counts);
    }
    if out.len() == 1 { Out::Tensor(out.remove(0)) } else { Out::Tuple(out) }
}

/// PyTorch keeps equal elements in order in descending sorts too; every sort here is stable.
fn sort(input: &Tensor, dim: isize, descending: bool) -> Result<Out> {
    input.sort(dim, descending).map(pair)
}

fn index_int(found: Tensor, out_int32: bool) -> Result<Tensor> {
    if out_int32 { found.to_dtype(DType::I32) } else { Ok(found) }
}

fn side(right: bool, side: Option<&str>) -> Result<bool> {
    match (right, side) {
        (right, None) => Ok(right),
        (_, Some("right")) => Ok(true),
        (false, Some("left")) => Ok(false),
        (true, Some("left")) => Err(Error::value(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True",
        )),
        (_, Some(other)) => {
            Err(Error::value(format!("torch.searchsorted(): side can only be 'left' or 'right' but got {other}")))
        }
    }
}

fn searchsorted(
    sorted: &Tensor,
    values: Arg,
    out_int32: bool,
    right: bool,
    at: Option<&str>,
    sorter: Option<&Tensor>,
) -> Result<Tensor> {
    let right = side(right, at)?;
    let found = match sorter {
        Some(sorter) => sorted.searchsorted_with_sorter(values, right, sorter)?,
        None => sorted.searchsorted(values, right)?,
    };
    index_int(found, out_int32)
}

fn bucketize(input: Arg, boundaries: &Tensor, out_int32: bool, right: bool) -> Result<Tensor> {
    // `right` has the same meaning in bucketize and searchsorted: the boundary belongs to the left bucket unless set.
    let found = match input {
        Arg::Tensor(t) => t.bucketize(boundaries, right)?,
        Arg::Scalar(s) => Tensor::scalar(s)?.to(boundaries.device())?.bucketize(boundaries, right)?,
    };
    index_int(found, out_int32)
}

/// Indices that PyTorch requires as `int64`.
fn long<'a>(name: &str, index: &'a Tensor) -> Result<&'a Tensor> {
    match index.dtype() {
        DType::I64 => Ok(index),
        other => Err(Error::value(format!("{name}(): Expected a long tensor for index, but got {other}"))),
    }
}

/// [`long`], after the dimension was checked.
fn long_of<'a>(name: &str, input: &Tensor, dim: isize, index: &'a Tensor) -> Result<&'a Tensor> {
    rushlight_core::layout::wrap_dim(dim, input.rank().max(1)).map_err(|e| e.within(name))?;
    long(name, index)
}

/// PyTorch's kernel for dimension 1 has a `RuntimeError` for an index out of bounds, the others an `IndexError`.
fn index_select(input: &Tensor, dim: isize, index: &Tensor) -> Result<Tensor> {
    if input.rank() > 1 && input.numel() == 0 && index.numel() > 0 && index.dtype().is_int() {
        let size = input.size(dim)? as i64;
        let (low, high) = (index.min(..)?.to_scalar()?.to_i64(), index.max(..)?.to_scalar()?.to_i64());
        if size > 0 && (low < 0 || high >= size) {
            return Err(Error::value(format!(
                "index_select: index out of bounds for dimension {dim} with size {size}"
            )));
        }
    }
    let second = input.rank() > 1 && (dim == 1 || dim == 1 - input.rank() as isize);
    let found = input.index_select(dim, index);
    if second { in_bounds(found) } else { found }
}

fn as_index(error: Error) -> Error {
    Error::index(error.to_string())
}

fn accumulate(input: &Tensor, dim: isize, dtype: Option<DType>, sum: bool) -> Result<Tensor> {
    rushlight_core::layout::wrap_dim(dim, input.rank().max(1))?;
    if dtype == Some(DType::Bool) && input.numel() == 0 {
        return input.detach().to_dtype(DType::Bool);
    }
    match (dtype, sum) {
        (None, true) => input.cumsum(dim),
        (Some(DType::Bool), _) if !input.requires_grad() || input.rank() > 0 => {
            Err(Error::dtype("cumsum and cumprod: not implemented for bool"))
        }
        (Some(dtype), true) => super::reduce::differentiable(input, dtype).and_then(|()| input.cumsum_as(dim, dtype)),
        (None, false) => input.cumprod(dim),
        (Some(dtype), false) => super::reduce::differentiable(input, dtype).and_then(|()| input.cumprod_as(dim, dtype)),
    }
}

/// A mask of `masked_fill`.
fn truths(mask: &Tensor) -> Result<&Tensor> {
    match mask.dtype() {
        DType::Bool => Ok(mask),
        other => {
            Err(Error::value(format!("masked_fill_ only supports boolean masks, but got mask with dtype {other}")))
        }
    }
}

rows! { ROWS:
    /// Entries of a dimension by index.
    index_select [Torch Method] "index_select(Tensor input, int dim, Tensor index)" |input: &Tensor, dim: isize, index: &Tensor| index_select(input, dim, index);
    /// Adds entries at indices of a dimension.
    index_add [Torch Method] "index_add(Tensor input, int dim, Tensor index, Tensor source, *, Number alpha=1)"
        |input: &Tensor, dim: isize, index: &Tensor, source: &Tensor, alpha: Scalar| {
            let out = input.index_add(dim, index, source, alpha);
            // PyTorch has a kernel of its own for vectors, with another class of exception.
            if input.rank() > 1 { in_bounds(out) } else { out }
        };
    /// `index_add` in place.
    index_add_ [Method] "index_add_(Tensor self, int dim, Tensor index, Tensor source, *, Number alpha=1)"
        |input: &Tensor, dim: isize, index: &Tensor, source: &Tensor, alpha: Scalar| input.index_add_(dim, index, source, alpha);
    /// Writes entries at indices of a dimension.
    index_copy [Torch Method] "index_copy(Tensor input, int dim, Tensor index, Tensor source)"
        |input: &Tensor, dim: isize, index: &Tensor, source: &Tensor| input.index_copy(dim, long_of("index_copy", input, dim, index)?, source);
    /// `index_copy` in place.
    index_copy_ [Method] "index_copy_(Tensor self, int dim, Tensor index, Tensor source)"
        |input: &Tensor, dim: isize, index: &Tensor, source: &Tensor| input.index_copy_(dim, long_of("index_copy_", input, dim, index)?, source);
    /// Writes a number at indices of a dimension.
    index_fill [Torch Method] "index_fill(Tensor input, int dim, Tensor index, Tensor|Number value)"
        |input: &Tensor, dim: isize, index: &Tensor, value: Arg| not_complex("index_fill", input, &value)?.index_fill(dim, long("index_fill", index).map_err(as_index)?, value);
    /// `index_fill` in place.
    index_fill_ [Method] "index_fill_(Tensor self, int dim, Tensor index, Tensor|Number value)"
        |input: &Tensor, dim: isize, index: &Tensor, value: Arg| not_complex("index_fill_", input, &value)?.index_fill_(dim, long("index_fill_", index).map_err(as_index)?, value);
    /// Elements by their row-major position.
    take [Torch Method] "take(Tensor input, Tensor index)" |input: &Tensor, index: &Tensor| input.take(long("take", index)?);
    /// Writes elements at row-major positions.
    put [Torch Method Inplace] "put(Tensor input, Tensor index, Tensor source, bool accumulate=False)"
        |input: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool| input.put(index, source, accumulate);
    /// Elements by an index along one dimension.
    gather [Torch Method] "gather(Tensor input, int dim, Tensor index, *, bool sparse_grad=False)"
        |input: &Tensor, dim: isize, index: &Tensor, sparse_grad: bool| {
            if index.numel() > 0 && !matches!(index.dtype(), DType::I32 | DType::I64) {
                return Err(Error::value(format!("gather(): Expected dtype int32/int64 for index, got {}", index.dtype())));
            }
            dense_only(sparse_grad).and_then(|()| in_bounds(input.gather(dim, index)))
        };
    /// Elements by indices that broadcast.
    take_along_dim [Torch Method] "take_along_dim(Tensor input, Tensor indices, int? dim=None)"
        |input: &Tensor, indices: &Tensor, dim: Option<isize>| {
            if dim.is_some() && input.rank() == 0 && indices.rank() == 0 {
                return Err(Error::index("take_along_dim: dimension specified as 0 but tensor has no dimensions"));
            }
            if indices.dtype() != DType::I64 {
                return Err(Error::value(format!("torch.take_along_dim(): dtype of indices should be Long but got {}", indices.dtype())));
            }
            in_bounds(input.take_along_dim(indices, dim))
        };
    /// Writes elements by an index along one dimension.
    scatter [Torch Method]
        "scatter(Tensor input, int dim, Tensor index, Tensor|Number src, *, str? reduce=None)"
            |input: &Tensor, dim: isize, index: &Tensor, src: Arg, reduce: Option<&str>| in_bounds(scatter(input, dim, index, src, reduce)),
        "scatter(Tensor input, int dim, Tensor index, Number value, *, str? reduce=None)"
            |input: &Tensor, dim: isize, index: &Tensor, value: Scalar, reduce: Option<&str>| scatter(input, dim, index, Arg::Scalar(value), reduce);
    /// `scatter` in place.
    scatter_ [Method]
        "scatter_(Tensor self, int dim, Tensor index, Tensor|Number src, *, str? reduce=None)"
            |input: &Tensor, dim: isize, index: &Tensor, src: Arg, reduce: Option<&str>| in_bounds(scatter_(input, dim, index, src, reduce)),
        "scatter_(Tensor self, int dim, Tensor index, Number value, *, str? reduce=None)"
            |input: &Tensor, dim: isize, index: &Tensor, value: Scalar, reduce: Option<&str>| scatter_(input, dim, index, Arg::Scalar(value), reduce);
    /// Adds elements by an index along one dimension.
    scatter_add [Torch Method] "scatter_add(Tensor input, int dim, Tensor index, Tensor src)"
        |input: &Tensor, dim: isize, index: &Tensor, src: &Tensor| in_bounds(input.scatter_add(dim, index, src));
    /// `scatter_add` in place.
    scatter_add_ [Method] "scatter_add_(Tensor self, int dim, Tensor index, Tensor src)"
        |input: &Tensor, dim: isize, index: &Tensor, src: &Tensor| in_bounds(input.scatter_add_(dim, index, src));
    /// Reduces elements by an index along one dimension.
    scatter_reduce [Torch Method] "scatter_reduce(Tensor input, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)"
        |input: &Tensor, dim: isize, index: &Tensor, src: &Tensor, reduce: &str, include_self: bool|
        scatter_reduce(input, dim, index, src, reduce, include_self);
    /// `scatter_reduce` in place.
    scatter_reduce_ [Method] "scatter_reduce_(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)"
        |input: &Tensor, dim: isize, index: &Tensor, src: &Tensor, reduce: &str, include_self: bool|
        input.scatter_reduce_(dim, index, src, reduction(reduce)?, include_self);
    /// Reduces entries at indices of a dimension.
    index_reduce [Torch Method Inplace] "index_reduce(Tensor input, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True)"
        |input: &Tensor, dim: isize, index: &Tensor, source: &Tensor, reduce: &str, include_self: bool|
        index_reduce(input, dim, index, source, reduce, include_self);
    /// Reduces consecutive segments of a dimension, given by their lengths or offsets.
    segment_reduce [Torch] "segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0, bool unsafe=False, Number? initial=None)"
        |data: &Tensor, reduce: &str, lengths: Option<&Tensor>, indices: Option<&Tensor>, offsets: Option<&Tensor>, axis: isize, unchecked: bool, initial: Option<Scalar>|
        segment_reduce(data, reduce, [lengths, indices, offsets], axis, unchecked, initial);
    /// Elements where a mask is true.
    masked_select [Torch Method] "masked_select(Tensor input, Tensor mask)" |input: &Tensor, mask: &Tensor| input.masked_select(mask);
    /// Writes a number where a mask is true.
    masked_fill [Torch Method] "masked_fill(Tensor input, Tensor mask, Tensor|Number value)" |input: &Tensor, mask: &Tensor, value: Arg| input.masked_fill(truths(mask)?, value);
    /// `masked_fill` in place.
    masked_fill_ [Method] "masked_fill_(Tensor self, Tensor mask, Tensor|Number value)" |input: &Tensor, mask: &Tensor, value: Arg| input.masked_fill_(truths(mask)?, value);
    /// Writes elements of a source, in order, where a mask is true.
    masked_scatter [Torch Method] "masked_scatter(Tensor input, Tensor mask, Tensor source)" |input: &Tensor, mask: &Tensor, source: &Tensor| input.masked_scatter(mask, source);
    /// `masked_scatter` in place.
    masked_scatter_ [Method] "masked_scatter_(Tensor self, Tensor mask, Tensor source)" |input: &Tensor, mask: &Tensor, source: &Tensor| input.masked_scatter_(mask, source);
    /// Indices of nonzero elements: as rows, or one tensor per dimension.
    nonzero [Torch Method] "nonzero(Tensor input, *, bool as_tuple=False)" |input: &Tensor, as_tuple: bool| nonzero(input, as_tuple);
    /// Indices of nonzero elements, as rows.
    argwhere [Torch Method] "argwhere(Tensor input)" |input: &Tensor| input.argwhere();
    /// Sorted elements and their indices.
    sort [Torch Method]
        "sort(Tensor input, int dim=-1, bool descending=False, bool stable=False)" |input: &Tensor, dim: isize, descending: bool, _stable: bool| sort(input, dim, descending),
        "sort(Tensor input, *, bool? stable, int dim=-1, bool descending=False)" |input: &Tensor, _stable: Option<bool>, dim: isize, descending: bool| sort(input, dim, descending);
    /// Indices that sort the elements.
    argsort [Torch Method]
        "argsort(Tensor input, int dim=-1, bool descending=False, bool stable=False)" |input: &Tensor, dim: isize, descending: bool, _stable: bool| input.argsort(dim, descending),
        "argsort(Tensor input, *, bool stable, int dim=-1, bool descending=False)" |input: &Tensor, _stable: bool, dim: isize, descending: bool| input.argsort(dim, descending);
    /// Sorts along the first dimension.
    msort [Torch Method] "msort(Tensor input)" |input: &Tensor| input.msort();
    /// The largest or smallest elements, and their indices.
    topk [Torch Method] "topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True)" |input: &Tensor, k: i64, dim: isize, largest: bool, _sorted: bool|
        input.topk(size(k, "topk: k")?, dim, largest).map(pair);
    /// Sorted distinct values; optionally each element's index among them, and counts.
    unique [Torch Method] "unique(Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None)"
        |input: &Tensor, _sorted: bool, inverse: bool, counts: bool, dim: Option<isize>| Ok::<_, Error>(match dim {
            None => unique(input.unique_full()?, inverse, counts),
            Some(dim) => unique(input.unique_dim_full(dim)?, inverse, counts),
        });
    /// Runs of equal elements.
    unique_consecutive [Torch Method] "unique_consecutive(Tensor input, bool return_inverse=False, bool return_counts=False, int? dim=None)"
        |input: &Tensor, inverse: bool, counts: bool, dim: Option<isize>| unique_consecutive(input, inverse, counts, dim);
    /// Insertion points of values in sorted rows.
    searchsorted [Torch] "searchsorted(Tensor sorted_sequence, Tensor|Number input, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None)"
        |sorted: &Tensor, input: Arg, out_int32: bool, right: bool, side: Option<&str>, sorter: Option<&Tensor>|
        searchsorted(sorted, input, out_int32, right, side, sorter);
    /// The bucket of each element.
    bucketize [Torch] "bucketize(Tensor|Number input, Tensor boundaries, *, bool out_int32=False, bool right=False)"
        |input: Arg, boundaries: &Tensor, out_int32: bool, right: bool| bucketize(input, boundaries, out_int32, right);
    /// Running sums.
    cumsum [Torch Method Inplace] "cumsum(Tensor input, int dim, *, dtype? dtype=None)" |input: &Tensor, dim: isize, dtype: Option<DType>| accumulate(input, dim, dtype, true);
    /// Running products.
    cumprod [Torch Method Inplace] "cumprod(Tensor input, int dim, *, dtype? dtype=None)" |input: &Tensor, dim: isize, dtype: Option<DType>| accumulate(input, dim, dtype, false);
    /// Running logarithms of sums of exponentials.
    logcumsumexp [Torch Method] "logcumsumexp(Tensor input, int dim)" |input: &Tensor, dim: isize| input.logcumsumexp(dim);
    /// Running maxima, and their indices.
    cummax [Torch Method] "cummax(Tensor input, int dim)" |input: &Tensor, dim: isize| input.cummax(dim).map(pair);
    /// Running minima, and their indices.
    cummin [Torch Method] "cummin(Tensor input, int dim)" |input: &Tensor, dim: isize| input.cummin(dim).map(pair);
    /// Differences of neighbours.
    diff [Torch Method] "diff(Tensor input, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None)"
        |input: &Tensor, n: i64, dim: isize, prepend: Option<&Tensor>, append: Option<&Tensor>| input.diff(size(n, "diff: n")?, dim, prepend, append);
    /// Area under a curve, by trapezoids.
    trapezoid [Torch]
        "trapezoid(Tensor y, Tensor x, *, int dim=-1)" |y: &Tensor, x: &Tensor, dim: isize| trapezoids(y, x.into(), dim)?.sum(dim),
        "trapezoid(Tensor y, *, Number dx=1, int dim=-1)" |y: &Tensor, dx: Scalar, dim: isize| trapezoid(y, dx, dim);
    /// Another name of `trapezoid`.
    trapz [Torch]
        "trapz(Tensor y, Tensor x, *, int dim=-1)" |y: &Tensor, x: &Tensor, dim: isize| trapezoids(y, x.into(), dim)?.sum(dim),
        "trapz(Tensor y, *, Number dx=1, int dim=-1)" |y: &Tensor, dx: Scalar, dim: isize| trapezoid(y, dx, dim);
    /// Running area under a curve, by trapezoids.
    cumulative_trapezoid [Torch]
        "cumulative_trapezoid(Tensor y, Tensor x, *, int dim=-1)" |y: &Tensor, x: &Tensor, dim: isize| trapezoids(y, x.into(), dim)?.cumsum(dim),
        "cumulative_trapezoid(Tensor y, *, Number dx=1, int dim=-1)" |y: &Tensor, dx: Scalar, dim: isize| trapezoids(y, dx.into(), dim)?.cumsum(dim);
    /// A copy with one entry of a dimension replaced.
    select_scatter [Torch Method] "select_scatter(Tensor input, Tensor src, int dim, int index)" |input: &Tensor, src: &Tensor, dim: isize, index: isize|
        embedded(input, src, |t| t.select(dim, index));
    /// A copy with a slice of a dimension replaced.
    slice_scatter [Torch Method] "slice_scatter(Tensor input, Tensor src, int dim=0, int? start=None, int? end=None, int step=1)"
        |input: &Tensor, src: &Tensor, dim: isize, start: Option<isize>, end: Option<isize>, step: i64|
        embedded(input, src, |t| t.slice(dim, start, end, size(step, "slice_scatter: step")?));
    /// A copy with a diagonal replaced.
    diagonal_scatter [Torch Method] "diagonal_scatter(Tensor input, Tensor src, int offset=0, int dim1=0, int dim2=1)"
        |input: &Tensor, src: &Tensor, offset: isize, dim1: isize, dim2: isize| embedded(input, src, |t| t.diagonal(offset, dim1, dim2));
    /// Scales down sub-tensors whose norm exceeds a limit.
    renorm [Torch Method Inplace] "renorm(Tensor input, Number p, int dim, Number maxnorm)" |input: &Tensor, p: f64, dim: isize, maxnorm: f64| renorm(input, p, dim, maxnorm);
}

/// A copy with a part replaced.
fn embedded(input: &Tensor, src: &Tensor, part: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let out = input.copy()?;
    let target = part(&out)?;
    if target.shape() != src.shape() {
        return Err(Error::shape(format!(
            "expected src to have a size equal to the slice of self. src size = {:?}, slice size = {:?}",
            src.shape(),
            target.shape()
        )));
    }
    target.copy_(src)?;
    Ok(out)
}

fn renorm(input: &Tensor, p: f64, dim: isize, maxnorm: f64) -> Result<Tensor> {
    if p <= 0.0 {
        return Err(Error::value("renorm: non-positive-norm not supported"));
    }
    if maxnorm < 0.0 {
        return Err(Error::value(format!("renorm: expected maxnorm to be >= 0 but got {maxnorm}")));
    }
    let rank = input.rank() as isize;
    let dim = if dim < 0 { dim + rank } else { dim };
    let others: Vec<isize> = (0..rank).filter(|&d| d != dim).collect();
    let norms = input.norm_dims(p, &others, true)?;
    let factor = norms.add(1e-7)?.rdiv(maxnorm)?;
    let factor = rushlight_tensor::where_(&norms.gt(maxnorm)?, &factor, 1.0)?;
    input.mul(&factor.to_dtype(input.dtype())?)?.contiguous()
}

fn nonzero(input: &Tensor, as_tuple: bool) -> Result<Out> {
    match as_tuple {
        true if input.rank() == 0 => input.reshape([1usize])?.nonzero_tuple().map(Out::Tuple),
        true => input.nonzero_tuple().map(Out::Tuple),
        false => input.nonzero().map(Out::Tensor),
    }
}

fn unique_consecutive(input: &Tensor, inverse: bool, counts: bool, dim: Option<isize>) -> Result<Out> {
    match dim {
        None => Ok(unique(input.unique_consecutive_full()?, inverse, counts)),
        Some(_) if input.rank() == 1 => Ok(unique(input.unique_consecutive_full()?, inverse, counts)),
        Some(dim) => Ok(unique(input.unique_consecutive_dim_full(dim)?, inverse, counts)),
    }
}

fn segment_reduce(
    data: &Tensor,
    reduce: &str,
    [lengths, indices, offsets]: [Option<&Tensor>; 3],
    axis: isize,
    unchecked: bool,
    initial: Option<Scalar>,
) -> Result<Tensor> {
    let reduce = match reduce {
        "max" => ScatterReduce::Amax,
        "min" => ScatterReduce::Amin,
        other => reduction(other)?,
    };
    if indices.is_some() {
        return Err(Error::value("segment_reduce(): indices based reduction is not supported yet."));
    }
    if let Some(offsets) = offsets {
        return data.segment_reduce(reduce, offsets, axis, initial);
    }
    let Some(lengths) = lengths else {
        return Err(Error::value("segment_reduce(): Either lengths or offsets must be defined."));
    };
    if !unchecked && lengths.numel() > 0 {
        if lengths.lt(0)?.any(..)?.item::<bool>()? {
            return Err(Error::value("lengths contains negative value!"));
        }
        let whole = data.shape().get(lengths.rank() - 1).copied().unwrap_or(0) as i64;
        if lengths.sum_dims([-1], false)?.ne(whole)?.any(..)?.item::<bool>()? {
            return Err(Error::value(
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.",
            ));
        }
    }
    let offsets = lengths.cumsum(-1)?.pad(&[1, 0], PadMode::default())?;
    data.segment_reduce(reduce, &offsets, axis, initial)
}

fn scatter_reduce(
    input: &Tensor,
    dim: isize,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
    include_self: bool,
) -> Result<Tensor> {
    rushlight_core::layout::wrap_dim(dim, input.rank().max(1)).map_err(|e| e.within("scatter_reduce"))?;
    if input.dtype() == DType::Bool && reduce == "mean" {
        return Err(Error::dtype("scatter_reduce: mean is not implemented for bool"));
    }
    input.scatter_reduce(dim, index, src, reduction(reduce)?, include_self)
}

fn index_reduce(
    input: &Tensor,
    dim: isize,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    include_self: bool,
) -> Result<Tensor> {
    let rank = source.rank() as isize;
    let wrapped = if dim < 0 { dim + rank } else { dim };
    let shape: Vec<isize> = (0..rank).map(|d| if d == wrapped { -1 } else { 1 }).collect();
    let index = index.reshape(&shape)?.expand(source.shape())?;
    input.scatter_reduce(dim, &index, source, reduction(reduce)?, include_self)
}

/// The area under equidistant points: all heights, less half of the first and the last. Zeros of the points' dtype,
/// without a gradient, if there are none.
fn trapezoid(y: &Tensor, dx: Scalar, dim: isize) -> Result<Tensor> {
    if y.size(dim)? == 0 {
        return y.detach().sum(dim)?.to_dtype(y.dtype());
    }
    if y.dtype() == DType::Bool {
        return Err(Error::dtype("trapezoid: not implemented for bool"));
    }
    let ends = y.select(dim, 0)?.add(&y.select(dim, -1)?)?.mul(0.5)?;
    y.sum(dim)?.sub(&ends)?.mul(dx.to_f64())
}

fn trapezoids(y: &Tensor, spacing: Arg, dim: isize) -> Result<Tensor> {
    let n = y.size(dim)?;
    if y.dtype() == DType::Bool {
        return Err(Error::dtype("trapezoid: not implemented for bool"));
    }
    if n == 0 {
        return y.mul(0.5);
    }
    let heights = y.narrow(dim, 1, n - 1)?.add(&y.narrow(dim, 0, n - 1)?)?;
    let widths = match spacing {
        Arg::Scalar(dx) => return heights.mul(dx.to_f64() / 2.0),
        Arg::Tensor(x) if x.rank() == 1 => {
            let d = x.diff(1, 0, None, None)?;
            let rank = y.rank() as isize;
            let wrapped = if dim < 0 { dim + rank } else { dim };
            let shape: Vec<isize> = (0..rank).map(|k| if k == wrapped { -1 } else { 1 }).collect();
            d.reshape(&shape)?
        }
        Arg::Tensor(x) => x.diff(1, dim, None, None)?,
    };
    heights.mul(&widths)?.div(2.0)
}
