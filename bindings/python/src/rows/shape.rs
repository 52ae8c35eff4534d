//! Views, memory formats, joining and splitting.

use crate::rows;
use crate::value::{MemoryFormat, Out, Sizes, dims, size, sizes};
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::{
    Arg, Indexing, Tensor, block_diag, cartesian_prod, cat, dstack, hstack, meshgrid, stack, vstack,
};

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

fn join(tensors: &[Tensor], dim: isize) -> Result<Tensor> {
    if tensors.is_empty() {
        return Err(crate::error::value("torch.cat(): expected a non-empty list of Tensors"));
    }
    cat(&refs(tensors), dim)
}

fn squeeze(input: &Tensor, dim: Option<&[i64]>) -> Result<Tensor> {
    match dim {
        None => input.squeeze(..),
        Some(dim) => input.squeeze(dims(dim)),
    }
}

fn split(input: &Tensor, sections: &[i64], dim: isize) -> Result<Vec<Tensor>> {
    input.split_with_sizes(&sizes(sections)?, dim)
}

/// Splits at positions, as NumPy does.
fn split_at(input: &Tensor, positions: &[i64], dim: isize) -> Result<Vec<Tensor>> {
    if input.rank() == 0 {
        return Err(Error::shape(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
        ));
    }
    let n = input.size(dim)? as i64;
    let wrap = |p: i64| if p < 0 { (p + n).max(0) } else { p.min(n) };
    let mut start = 0;
    let mut out = Vec::new();
    for end in positions.iter().map(|&p| wrap(p)).chain([n]) {
        out.push(input.narrow(dim, start as isize, (end - start).max(0) as usize)?);
        start = end;
    }
    Ok(out)
}

/// Nearly equal parts: the first ones are longer by one.
fn split_evenly(input: &Tensor, sections: i64, dim: isize) -> Result<Vec<Tensor>> {
    input.tensor_split(size(sections, "tensor_split: sections")?, dim)
}

/// A number of parts, or positions between parts, given as a tensor of integers.
fn split_by_tensor(input: &Tensor, at: &Tensor, dim: isize) -> Result<Vec<Tensor>> {
    if !at.device().is_cpu() || at.dtype() != DType::I64 || at.rank() > 1 {
        return Err(Error::value(format!(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional int64 tensor on the CPU, but got {} \
             with {} dims on {}",
            at.dtype(),
            at.rank(),
            at.device()
        )));
    }
    match at.rank() {
        0 => split_evenly(input, at.item::<i64>()?, dim),
        _ => split_at(input, &at.to_vec::<i64>()?, dim),
    }
}

/// The dimension that `hsplit`, `vsplit` and `dsplit` split, by the tensor's rank.
fn split_numpy(input: &Tensor, sections: &crate::value::Value, dim: isize, call: &str) -> Result<Vec<Tensor>> {
    match sections {
        crate::value::Value::Scalar(n) => {
            let (n, length) = (n.to_i64(), input.size(dim)?);
            if n <= 0 || length % n as usize != 0 {
                return Err(Error::value(format!(
                    "torch.{call} attempted to split along dimension {dim}, but the size of the dimension {length} is not divisible by the \
                     split_size {n}!"
                )));
            }
            split_evenly(input, n, dim)
        }
        crate::value::Value::Ints(positions) => split_at(input, positions, dim),
        _ => Err(Error::value(format!("torch.{call} takes a number of sections or positions"))),
    }
}

fn at_least(input: &Tensor, rank: usize) -> Result<Tensor> {
    match (rank, input.rank()) {
        (1, 0) => input.reshape([1usize]),
        (2, 0) => input.reshape([1usize, 1]),
        (2, 1) => input.unsqueeze(0),
        (3, 0) => input.reshape([1usize, 1, 1]),
        (3, 1) => input.unsqueeze(0)?.unsqueeze(2),
        (3, 2) => input.unsqueeze(2),
        _ => Ok(input.clone()),
    }
}

fn at_least_all(tensors: &[Tensor], rank: usize) -> Result<Vec<Tensor>> {
    tensors.iter().map(|t| at_least(t, rank)).collect()
}

/// A tensor whose elements are in a memory format's order.
pub fn formatted(input: &Tensor, format: MemoryFormat) -> Result<Tensor> {
    match (format, input.rank()) {
        (MemoryFormat::Preserve, _) => Ok(input.clone()),
        (MemoryFormat::Contiguous, _) => input.contiguous(),
        (MemoryFormat::ChannelsLast, 4) => input.permute([0, 2, 3, 1])?.contiguous()?.permute([0, 3, 1, 2]),
        (MemoryFormat::ChannelsLast3d, 5) => input.permute([0, 2, 3, 4, 1])?.contiguous()?.permute([0, 4, 1, 2, 3]),
        (MemoryFormat::ChannelsLast, rank) => {
            Err(Error::shape(format!("required rank 4 tensor to use channels_last format, this one has rank {rank}")))
        }
        (MemoryFormat::ChannelsLast3d, rank) => Err(Error::shape(format!(
            "required rank 5 tensor to use channels_last_3d format, this one has rank {rank}"
        ))),
    }
}

fn adjoint(input: &Tensor) -> Result<Tensor> {
    match input.rank() {
        1 => {
            Err(Error::shape("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."))
        }
        _ => input.transpose(-2, -1),
    }
}

fn positive_step(step: i64) -> Result<usize> {
    if step > 0 { Ok(step as usize) } else { Err(Error::value(format!("step is {step} but must be > 0"))) }
}

/// Dimensions to move, without repeats.
fn distinct(name: &str, input: &Tensor, list: &[i64]) -> Result<()> {
    let wrapped = |d: &i64| if *d < 0 { d + input.rank() as i64 } else { *d };
    let repeated = list.iter().enumerate().any(|(at, d)| list[..at].iter().any(|e| wrapped(e) == wrapped(d)));
    if repeated { Err(Error::value(format!("movedim: repeated dim in `{name}` ({list:?})"))) } else { Ok(()) }
}

fn movedim(input: &Tensor, source: &[i64], destination: &[i64]) -> Result<Tensor> {
    if source.len() == destination.len() {
        distinct("source", input, source)?;
        distinct("destination", input, destination)?;
    }
    input.movedim(dims(source), dims(destination))
}

/// The start of a `narrow` as a tensor.
fn whole_start(start: &Tensor) -> Result<isize> {
    match start.rank() == 0 && start.dtype().is_int() {
        true => Ok(start.item::<i64>()? as isize),
        false => Err(Error::shape("start must be an 0-dim integral Tensor.")),
    }
}

fn is_contiguous(input: &Tensor, format: MemoryFormat) -> Result<bool> {
    if input.numel() == 0 && format != MemoryFormat::ChannelsLast && format != MemoryFormat::ChannelsLast3d {
        return Ok(true);
    }
    match (format, input.rank()) {
        (MemoryFormat::ChannelsLast, 4) => Ok(input.permute([0, 2, 3, 1])?.is_contiguous()),
        (MemoryFormat::ChannelsLast3d, 5) => Ok(input.permute([0, 2, 3, 4, 1])?.is_contiguous()),
        (MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d, _) => Ok(false),
        _ => Ok(input.is_contiguous()),
    }
}

fn to(
    input: &Tensor,
    place: Option<(Device, bool)>,
    dtype: Option<DType>,
    copy: bool,
    format: MemoryFormat,
) -> Result<Tensor> {
    let mut out = match place {
        Some((device, non_blocking)) => input.to_with(&device, non_blocking)?,
        None => input.clone(),
    };
    if let Some(dtype) = dtype {
        out = out.to_dtype(dtype)?;
    }
    out = formatted(&out, format)?;
    if copy && out.shares_storage(input) { out.copy() } else { Ok(out) }
}

/// A negative number of repeats is refused, but not of a dimension of size zero.
fn repeat(input: &Tensor, repeats: &[i64]) -> Result<Tensor> {
    let new = repeats.len().saturating_sub(input.rank());
    let count = |(i, &n): (usize, &i64)| match i.checked_sub(new).and_then(|d| input.shape().get(d)) {
        Some(0) => n.max(0),
        _ => n,
    };
    input.repeat(&crate::value::sizes(&repeats.iter().enumerate().map(count).collect::<Vec<_>>())?)
}

fn repeat_interleave(input: &Tensor, repeats: Arg, dim: Option<isize>, output_size: Option<i64>) -> Result<Tensor> {
    if let Some(dim) = dim
        && input.rank() == 0
    {
        return Err(Error::index(format!(
            "repeat_interleave: dimension out of range: a tensor without dimensions has no dimension {dim}"
        )));
    }
    let out = input.repeat_interleave(repeats, dim)?;
    let size = out.size(dim.unwrap_or(0))?;
    match output_size {
        Some(expected) if usize::try_from(expected) != Ok(size) => Err(Error::value(format!(
            "repeat_interleave: allocated size does not match required size: {expected} and {size}"
        ))),
        _ => Ok(out),
    }
}

fn copy_(input: &Tensor, src: &Tensor, non_blocking: bool) -> Result<()> {
    input.copy_(&src.to_with(&input.device(), non_blocking)?).map(drop)
}

/// Returns the same tensor if nothing changes, as PyTorch does.
fn same_or(input: &Tensor, out: Tensor) -> Out {
    if out.is_same(input) { Out::First } else { Out::Tensor(out) }
}

/// `expand` with PyTorch's words for sizes that do not fit.
fn expand(input: &Tensor, shape: &[i64]) -> Result<Tensor> {
    let have = input.shape();
    if shape.len() >= have.len() {
        let lead = shape.len() - have.len();
        let misfit = (0..have.len()).rev().find(|&i| {
            let want = shape[lead + i];
            want >= 0 && have[i] != 1 && have[i] as i64 != want
        });
        if let Some(i) = misfit {
            let (want, at) = (shape[lead + i], lead + i);
            return Err(Error::shape(format!(
                "The expanded size of the tensor ({want}) must match the existing size ({}) at non-singleton dimension {at}.  \
                 Target sizes: {shape:?}.  Tensor sizes: {have:?}",
                have[i]
            )));
        }
    }
    input.expand(shape)
}

fn view_dtype(input: &Tensor, dtype: DType) -> Result<Tensor> {
    let (from, to) = (input.dtype().size(), dtype.size());
    let (shape, strides, offset) = (input.shape().to_vec(), input.strides().to_vec(), input.layout().offset());
    let (shape, strides, offset) = if from == to {
        (shape, strides, offset)
    } else {
        let what = format!("to view {} as {dtype} (different element sizes)", input.dtype());
        let (Some(&last), Some(&stride)) = (shape.last(), strides.last()) else {
            return Err(Error::shape(format!("self.dim() cannot be 0 {what}")));
        };
        if stride != 1 {
            return Err(Error::shape(format!("self.stride(-1) must be 1 {what}, but got {stride}")));
        }
        if !(last * from).is_multiple_of(to) {
            return Err(Error::shape(format!(
                "self.size(-1) must be divisible by {} {what}, but got {last}",
                to / from
            )));
        }
        let rescale = |s: usize| (s * from).is_multiple_of(to).then_some(s * from / to);
        let mut shape = shape;
        let rank = shape.len();
        shape[rank - 1] = last * from / to;
        let uneven = |of: String, number: usize| {
            Error::shape(format!("self.{of} must be divisible by {} {what}, but got {number}", to / from))
        };
        let Some(offset) = rescale(offset) else { return Err(uneven("storage_offset()".into(), offset)) };
        let mut outer = Vec::with_capacity(rank);
        for (at, &stride) in strides[..rank - 1].iter().enumerate() {
            outer.push(rescale(stride).ok_or_else(|| uneven(format!("stride({at})"), stride))?);
        }
        outer.push(1);
        (shape, outer, offset)
    };
    let layout = rushlight_core::Layout::strided(&shape, &strides, offset)?;
    // SAFETY: the view shares ownership of the storage, and the layout was checked against its length.
    unsafe { Tensor::from_storage(input.storage().clone(), layout, dtype) }
}

fn pairs(list: &[Tensor], indexing: Option<&str>) -> Result<Vec<Tensor>> {
    let indexing = match indexing {
        None | Some("ij") => Indexing::Ij,
        Some("xy") => Indexing::Xy,
        Some(other) => {
            return Err(Error::value(format!(
                "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {other}"
            )));
        }
    };
    meshgrid(&refs(list), indexing)
}

fn broadcast(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut shape = rushlight_core::Dims::new();
    for t in tensors {
        shape = rushlight_core::layout::broadcast_shapes(&shape, t.shape())?;
    }
    // A tensor of that shape is given back itself.
    tensors.iter().map(|t| if *t.shape() == shape[..] { Ok(t.clone()) } else { t.expand(&shape) }).collect()
}

fn combinations(input: &Tensor, r: i64, with_replacement: bool) -> Result<Tensor> {
    let (n, r) = (input.numel(), size(r, "combinations: r")?);
    if r > n.max(64) {
        return Err(Error::value(format!("combinations: cannot take {r} of {n} elements")));
    }
    let mut rows: Vec<i64> = Vec::new();
    let mut choice: Vec<usize> = if with_replacement { vec![0; r] } else { (0..r).collect() };
    let mut count = 0usize;
    let possible = if with_replacement { n > 0 || r == 0 } else { r <= n };
    if possible {
        loop {
            rows.extend(choice.iter().map(|&i| i as i64));
            count += 1;
            let limit = |i: usize| if with_replacement { n - 1 } else { n - r + i };
            let Some(at) = (0..r).rev().find(|&i| choice[i] < limit(i)) else { break };
            let start = choice[at] + 1;
            for (k, slot) in choice[at..].iter_mut().enumerate() {
                *slot = if with_replacement { start } else { start + k };
            }
        }
    }
    let index = Tensor::from_slice(&rows, [count, r])?.to(input.device())?;
    input.flatten(0, -1)?.index([rushlight_tensor::IndexItem::Tensor(index)].as_slice())
}

rows! { ROWS:
    /// A view of the elements in another shape.
    view [Method]
        "view(Tensor self, dtype dtype)" |input: &Tensor, dtype: DType| view_dtype(input, dtype),
        "view(Tensor self, int... shape)" |input: &Tensor, shape: &[i64]| input.view(shape);
    /// A view of another tensor's shape.
    view_as [Method] "view_as(Tensor self, Tensor other)" |input: &Tensor, other: &Tensor| input.view(other.shape());
    /// The same elements in another shape, copied only if needed.
    reshape [Torch] "reshape(Tensor input, int[1] shape)" |input: &Tensor, shape: &[i64]| input.reshape(shape);
    /// Another tensor's shape.
    reshape_as [Method] "reshape_as(Tensor self, Tensor other)" |input: &Tensor, other: &Tensor| input.reshape(other.shape());
    /// Merges dimensions into one.
    flatten [Torch Method] "flatten(Tensor input, int start_dim=0, int end_dim=-1)" |input: &Tensor, start: isize, end: isize| input.flatten(start, end);
    /// One dimension, contiguous.
    ravel [Torch Method] "ravel(Tensor input)" |input: &Tensor| input.contiguous()?.flatten(0, -1);
    /// Splits one dimension into several.
    unflatten [Torch Method] "unflatten(Tensor input, int dim, int[] sizes)" |input: &Tensor, dim: isize, sizes: &[i64]| match sizes.is_empty() {
        true => Err(Error::shape("unflatten: sizes must be non-empty")),
        false => input.unflatten(dim, sizes),
    };
    /// Transposes two dimensions.
    transpose [Torch Method Inplace] "transpose(Tensor input, int dim0, int dim1)" |input: &Tensor, a: isize, b: isize| input.transpose(a, b);
    /// Transposes two dimensions.
    swapaxes [Torch Method] "swapaxes(Tensor input, int axis0, int axis1)" |input: &Tensor, a: isize, b: isize| input.transpose(a, b);
    /// Transposes two dimensions.
    swapdims [Torch Method] "swapdims(Tensor input, int dim0, int dim1)" |input: &Tensor, a: isize, b: isize| input.transpose(a, b);
    /// Transposes a matrix.
    t [Torch Method] "t(Tensor input)" |input: &Tensor| input.t();
    /// Transposes the last two dimensions.
    adjoint [Torch Method] "adjoint(Tensor input)" |input: &Tensor| adjoint(input);
    /// Permutes dimensions.
    permute [Torch] "permute(Tensor input, int[1] dims)" |input: &Tensor, order: &[i64]| input.permute(dims(order));
    /// Moves dimensions to other positions.
    movedim [Torch Method] "movedim(Tensor input, int[1] source, int[1] destination)" |input: &Tensor, source: &[i64], destination: &[i64]|
        movedim(input, source, destination);
    /// Moves dimensions to other positions.
    moveaxis [Torch Method] "moveaxis(Tensor input, int[1] source, int[1] destination)" |input: &Tensor, source: &[i64], destination: &[i64]|
        movedim(input, source, destination);
    /// Removes dimensions of size one.
    squeeze [Torch Method] "squeeze(Tensor input, int[1]? dim=None)" |input: &Tensor, dim: Option<&[i64]>| squeeze(input, dim);
    /// Inserts a dimension of size one.
    unsqueeze [Torch Method] "unsqueeze(Tensor input, int dim)" |input: &Tensor, dim: isize| input.unsqueeze(dim);
    /// Dimensions of size one repeated, without copying.
    broadcast_to [Torch Method] "broadcast_to(Tensor input, int... size)" |input: &Tensor, shape: &[i64]| expand(input, shape);
    /// Expanded to another tensor's size.
    expand_as [Method] "expand_as(Tensor self, Tensor other)" |input: &Tensor, other: &Tensor| input.expand_as(other);
    /// A part of one dimension.
    narrow [Torch Method]
        "narrow(Tensor input, int dim, int start, int length)" |input: &Tensor, dim: isize, start: isize, length: i64| input.narrow(dim, start, size(length, "narrow: length")?),
        "narrow(Tensor input, int dim, Tensor start, int length)" |input: &Tensor, dim: isize, start: &Tensor, length: i64|
            input.narrow(dim, whole_start(start)?, size(length, "narrow: length")?);
    /// A copy of a part of one dimension.
    narrow_copy [Torch Method] "narrow_copy(Tensor input, int dim, int start, int length)" |input: &Tensor, dim: isize, start: isize, length: i64|
        input.narrow(dim, start, size(length, "narrow_copy: length")?)?.copy();
    /// One entry of a dimension.
    select [Torch Method] "select(Tensor input, int dim, int index)" |input: &Tensor, dim: isize, index: isize| input.select(dim, index);
    /// The diagonal of two dimensions.
    diagonal [Torch Method] "diagonal(Tensor input, int offset=0, int dim1=0, int dim2=1)" |input: &Tensor, offset: isize, a: isize, b: isize| input.diagonal(offset, a, b);
    /// A matrix with a vector on a diagonal, or the diagonal of a matrix.
    diag [Torch Method] "diag(Tensor input, int diagonal=0)" |input: &Tensor, diagonal: isize| input.diag(diagonal);
    /// The elements as diagonals of new matrices.
    diag_embed [Torch Method] "diag_embed(Tensor input, int offset=0, int dim1=-2, int dim2=-1)" |input: &Tensor, offset: isize, a: isize, b: isize| input.diag_embed(offset, a, b);
    /// All elements on the diagonal of a matrix.
    diagflat [Torch Method] "diagflat(Tensor input, int offset=0)" |input: &Tensor, offset: isize| input.flatten(0, -1)?.diag(offset);
    /// Windows of a dimension.
    unfold [Method] "unfold(Tensor self, int dimension, int size, int step)" |input: &Tensor, dim: isize, width: i64, step: i64|
        input.unfold(dim, size(width, "unfold: size")?, positive_step(step)?);
    /// A view by sizes and strides.
    as_strided [Torch Method] "as_strided(Tensor input, int[1] size, int[1] stride, int? storage_offset=None)"
        |input: &Tensor, shape: Sizes, strides: Sizes, offset: Option<i64>|
        input.as_strided(&shape.0, &strides.0, size(offset.unwrap_or(input.layout().offset() as i64), "as_strided: storage_offset")?);
    /// Parts of a length, or of given lengths.
    split [Torch Method]
        "split(Tensor tensor, int split_size_or_sections, int dim=0)" |input: &Tensor, length: i64, dim: isize| input.split(size(length, "split: split_size")?, dim),
        "split(Tensor tensor, int[] split_size_or_sections, int dim=0)" |input: &Tensor, sections: &[i64], dim: isize| split(input, sections, dim),
        "split(Tensor tensor, int split_size, int dim=0)" |input: &Tensor, length: i64, dim: isize| input.split(size(length, "split: split_size")?, dim);
    /// Parts of given lengths.
    split_with_sizes [Torch Method] "split_with_sizes(Tensor input, int[] split_sizes, int dim=0)" |input: &Tensor, sections: &[i64], dim: isize| split(input, sections, dim);
    /// A number of parts.
    chunk [Torch Method] "chunk(Tensor input, int chunks, int dim=0)" |input: &Tensor, chunks: i64, dim: isize| input.chunk(size(chunks, "chunk: chunks")?, dim);
    /// A number of parts, or parts between positions.
    tensor_split [Torch Method]
        "tensor_split(Tensor input, Tensor tensor_indices_or_sections, int dim=0)" |input: &Tensor, at: &Tensor, dim: isize| split_by_tensor(input, at, dim),
        "tensor_split(Tensor input, int indices_or_sections, int dim=0)" |input: &Tensor, sections: i64, dim: isize| split_evenly(input, sections, dim),
        "tensor_split(Tensor input, int[] indices_or_sections, int dim=0)" |input: &Tensor, positions: &[i64], dim: isize| split_at(input, positions, dim),
        "tensor_split(Tensor input, int[] indices, int dim=0)" |input: &Tensor, positions: &[i64], dim: isize| split_at(input, positions, dim),
        "tensor_split(Tensor input, int sections, int dim=0)" |input: &Tensor, sections: i64, dim: isize| split_evenly(input, sections, dim);
    /// Parts along the columns.
    hsplit [Torch Method]
        "hsplit(Tensor input, int sections)" |input: &Tensor, n: &crate::value::Value| split_numpy(input, n, if input.rank() == 1 { 0 } else { 1 }, "hsplit"),
        "hsplit(Tensor input, int[] indices)" |input: &Tensor, n: &crate::value::Value| split_numpy(input, n, if input.rank() == 1 { 0 } else { 1 }, "hsplit");
    /// Parts along the rows.
    vsplit [Torch Method]
        "vsplit(Tensor input, int sections)" |input: &Tensor, n: &crate::value::Value| split_numpy(input, n, 0, "vsplit"),
        "vsplit(Tensor input, int[] indices)" |input: &Tensor, n: &crate::value::Value| split_numpy(input, n, 0, "vsplit");
    /// Parts along the third dimension.
    dsplit [Torch Method]
        "dsplit(Tensor input, int sections)" |input: &Tensor, n: &crate::value::Value| split_numpy(input, n, 2, "dsplit"),
        "dsplit(Tensor input, int[] indices)" |input: &Tensor, n: &crate::value::Value| split_numpy(input, n, 2, "dsplit");
    /// All entries of a dimension.
    unbind [Torch Method] "unbind(Tensor input, int dim=0)" |input: &Tensor, dim: isize| input.unbind(dim);
    /// The whole tensor repeated along its dimensions.
    repeat [Method] "repeat(Tensor self, int... repeats)" |input: &Tensor, repeats: &[i64]| repeat(input, repeats);
    /// The whole tensor repeated.
    tile [Torch] "tile(Tensor input, int[1] dims)" |input: &Tensor, repeats: Sizes| input.tile(&repeats.0);
    /// Elements repeated.
    repeat_interleave [Torch Method]
        "repeat_interleave(Tensor input, Tensor|Number repeats, int? dim=None, *, int? output_size=None)"
            |input: &Tensor, repeats: Arg, dim: Option<isize>, output_size: Option<i64>| repeat_interleave(input, repeats, dim, output_size),
        "repeat_interleave(Tensor repeats, *, int? output_size=None)" |repeats: &Tensor, output_size: Option<i64>| {
            if repeats.rank() != 1 {
                return Err(Error::shape("repeat_interleave only accept 1D vector as repeat"));
            }
            let places = Tensor::arange_with(0, repeats.numel() as i64, 1, (repeats.dtype(), repeats.device()))?;
            repeat_interleave(&places, Arg::Tensor(repeats), Some(0), output_size)
        };
    /// Rolls entries along dimensions.
    roll [Torch Method] "roll(Tensor input, int[1] shifts, int[1]? dims=None)" |input: &Tensor, shifts: &[i64], over: Option<&[i64]>|
        input.roll(dims(shifts), dims(over.unwrap_or(&[])));
    /// Reverses dimensions.
    flip [Torch] "flip(Tensor input, int[1] dims)" |input: &Tensor, over: &[i64]| input.flip(dims(over));
    /// Reverses columns.
    fliplr [Torch Method] "fliplr(Tensor input)" |input: &Tensor| input.fliplr();
    /// Reverses rows.
    flipud [Torch Method] "flipud(Tensor input)" |input: &Tensor| input.flipud();
    /// Rotates by multiples of 90 degrees.
    rot90 [Torch Method] "rot90(Tensor input, int k=1, int[2] dims=(0,1))" |input: &Tensor, k: isize, plane: &[i64]| match plane {
        &[a, b] => input.rot90(k, [a as isize, b as isize]),
        _ => Err(Error::value(format!("expected total rotation dims == 2, but got dims = {}", plane.len()))),
    };
    /// The lower triangle.
    tril [Torch Method Inplace] "tril(Tensor input, int diagonal=0)" |input: &Tensor, diagonal: i64| input.tril(diagonal);
    /// The upper triangle.
    triu [Torch Method Inplace] "triu(Tensor input, int diagonal=0)" |input: &Tensor, diagonal: i64| input.triu(diagonal);
    /// Concatenates tensors along a dimension.
    cat [Torch] "cat(Tensor[] tensors, int dim=0)" |tensors: &[Tensor], dim: isize| join(tensors, dim);
    /// Concatenates tensors along a dimension.
    concat [Torch] "concat(Tensor[] tensors, int dim=0)" |tensors: &[Tensor], dim: isize| join(tensors, dim);
    /// Concatenates tensors along a dimension.
    concatenate [Torch] "concatenate(Tensor[] tensors, int dim=0)" |tensors: &[Tensor], dim: isize| join(tensors, dim);
    /// Stacks tensors along a new dimension.
    stack [Torch] "stack(Tensor[] tensors, int dim=0)" |tensors: &[Tensor], dim: isize| stack(&refs(tensors), dim);
    /// Concatenates tensors horizontally.
    hstack [Torch] "hstack(Tensor[] tensors)" |tensors: &[Tensor]| hstack(&refs(tensors));
    /// Concatenates tensors vertically.
    vstack [Torch] "vstack(Tensor[] tensors)" |tensors: &[Tensor]| vstack(&refs(tensors));
    /// Concatenates tensors vertically.
    row_stack [Torch] "row_stack(Tensor[] tensors)" |tensors: &[Tensor]| vstack(&refs(tensors));
    /// Concatenates tensors along the third dimension.
    dstack [Torch] "dstack(Tensor[] tensors)" |tensors: &[Tensor]| dstack(&refs(tensors));
    /// Vectors as columns of a matrix.
    column_stack [Torch] "column_stack(Tensor[] tensors)" |tensors: &[Tensor]| column_stack(tensors);
    /// Blocks on the diagonal of a matrix.
    _block_diag [Torch] "block_diag(Tensor[] tensors)" |tensors: &[Tensor]| block_diag(&refs(tensors));
    /// All combinations of entries.
    _cartesian_prod [Torch] "cartesian_prod(Tensor[] tensors)" |tensors: &[Tensor]| cartesian_prod(&refs(tensors));
    /// Coordinates of a grid.
    _meshgrid [Torch] "meshgrid(Tensor[] tensors, *, str? indexing=None)" |tensors: &[Tensor], indexing: Option<&str>| pairs(tensors, indexing);
    /// Broadcasts tensors to one size.
    _broadcast_tensors [Torch] "broadcast_tensors(Tensor[] tensors)" |tensors: &[Tensor]| broadcast(tensors);
    /// With at least one dimension.
    _atleast_1d [Torch] "atleast_1d(Tensor[] tensors)" |tensors: &[Tensor]| at_least_all(tensors, 1);
    /// With at least two dimensions.
    _atleast_2d [Torch] "atleast_2d(Tensor[] tensors)" |tensors: &[Tensor]| at_least_all(tensors, 2);
    /// With at least three dimensions.
    _atleast_3d [Torch] "atleast_3d(Tensor[] tensors)" |tensors: &[Tensor]| at_least_all(tensors, 3);
    /// Combinations of `r` elements.
    combinations [Torch] "combinations(Tensor input, int r=2, bool with_replacement=False)" |input: &Tensor, r: i64, with_replacement: bool|
        combinations(input, r, with_replacement);
    /// A copy.
    clone [Torch Method] "clone(Tensor input, *, memory_format? memory_format=None)" |input: &Tensor, format: MemoryFormat| clone(input, format);
    /// The elements in row-major order, or in a memory format; the tensor itself if it has that order.
    contiguous [Method] "contiguous(Tensor self, memory_format? memory_format=None)" |input: &Tensor, format: Option<MemoryFormat>|
        formatted(input, format.unwrap_or(MemoryFormat::Contiguous)).map(|out| same_or(input, out));
    /// Whether the elements are in a memory format's order.
    is_contiguous [Method] "is_contiguous(Tensor self, memory_format? memory_format=None)" |input: &Tensor, format: MemoryFormat| is_contiguous(input, format);
    /// Converts to another device, dtype or memory format.
    to [Method]
        "to(Tensor self, dtype dtype, bool non_blocking=False, bool copy=False, *, memory_format? memory_format=None)"
            |input: &Tensor, dtype: DType, _non_blocking: bool, copy: bool, format: MemoryFormat| to(input, None, Some(dtype), copy, format).map(|out| same_or(input, out)),
        "to(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, *, memory_format? memory_format=None)"
            |input: &Tensor, other: &Tensor, non_blocking: bool, copy: bool, format: MemoryFormat|
            to(input, Some((other.device(), non_blocking)), Some(other.dtype()), copy, format).map(|out| same_or(input, out)),
        "to(Tensor self, device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False, *, memory_format? memory_format=None)"
            |input: &Tensor, device: Option<Device>, dtype: Option<DType>, non_blocking: bool, copy: bool, format: MemoryFormat|
            to(input, device.map(|device| (device, non_blocking)), dtype, copy, format).map(|out| same_or(input, out));
    /// Copies another tensor's elements, or a number, into this one.
    copy_ [Method] "copy_(Tensor self, Tensor src, bool non_blocking=False)" |input: &Tensor, src: &Tensor, non_blocking: bool|
        copy_(input, src, non_blocking).map(|()| Out::First),
        "copy_(Tensor self, Number src, bool non_blocking=False)" |input: &Tensor, src: rushlight_core::Scalar, _non_blocking: bool| match input.dtype() {
            // As a tensor of the number is converted: cut off to integers, without an error for large ones.
            dtype if dtype.is_int() => input.copy_(&Tensor::scalar(src)?).map(|_| Out::First),
            _ => input.fill_(src).map(|_| Out::First),
        };
    /// The number of the device, -1 for the CPU.
    get_device [Torch Method] "get_device(Tensor input)" |input: &Tensor| Ok::<_, Error>(match input.device() {
        Device::Cpu => -1i64,
        Device::Meta => -1,
        Device::Cuda(index) | Device::Xpu(index) => index as i64,
    });
}

rows! { METHODS:
    /// The same elements in another shape, copied only if needed.
    reshape [Method] "reshape(Tensor self, int... shape)" |input: &Tensor, shape: &[i64]| input.reshape(shape);
    /// Permutes dimensions.
    permute [Method] "permute(Tensor self, int... dims)" |input: &Tensor, order: &[i64]| input.permute(dims(order));
    /// Dimensions of size one repeated, without copying.
    expand [Method] "expand(Tensor self, int... size)" |input: &Tensor, shape: &[i64]| expand(input, shape);
    /// The whole tensor repeated.
    tile [Method] "tile(Tensor self, int... dims)" |input: &Tensor, repeats: Sizes| input.tile(&repeats.0);
    /// Reverses dimensions.
    flip [Method] "flip(Tensor self, int... dims)" |input: &Tensor, over: &[i64]| input.flip(dims(over));
}

fn clone(input: &Tensor, format: MemoryFormat) -> Result<Tensor> {
    match format {
        MemoryFormat::Preserve => input.copy(),
        format => {
            let out = formatted(input, format)?;
            if out.shares_storage(input) { out.copy() } else { Ok(out) }
        }
    }
}

fn column_stack(tensors: &[Tensor]) -> Result<Tensor> {
    let columns = tensors
        .iter()
        .map(|t| if t.rank() < 2 { t.reshape([t.numel(), 1]) } else { Ok(t.clone()) })
        .collect::<Result<Vec<_>>>()?;
    cat(&refs(&columns), 1)
}
