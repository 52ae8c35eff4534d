//! Sequences of different lengths in one tensor: padded, or packed without the padding.

use rushlight_core::{Error, Result};
use rushlight_tensor::{Tensor, cat};

/// Sequences of different lengths without padding: the first steps of all, the second steps of those that have one, and
/// so on, longest sequence first.
#[derive(Clone)]
pub struct PackedSequence {
    data: Tensor,
    batch_sizes: Vec<usize>,
    order: Option<Order>,
}

/// How sequences were sorted: `sorted[i]` is where the i-th longest came from, `unsorted[i]` where the i-th went.
#[derive(Clone)]
struct Order {
    sorted: Tensor,
    unsorted: Tensor,
}

impl Order {
    fn new(sorted: &[usize], like: &Tensor) -> Result<Self> {
        let mut unsorted = vec![0; sorted.len()];
        for (place, &from) in sorted.iter().enumerate() {
            unsorted[from] = place;
        }
        Ok(Self { sorted: indices(sorted.iter().copied(), like)?, unsorted: indices(unsorted, like)? })
    }
}

impl PackedSequence {
    /// The elements, `[sum of lengths, ..]`.
    pub fn data(&self) -> &Tensor {
        &self.data
    }

    /// How many sequences have a first step, a second step, and so on.
    pub fn batch_sizes(&self) -> &[usize] {
        &self.batch_sizes
    }

    /// Which sequence became the first, the second, …; none if they were sorted already.
    pub fn sorted_indices(&self) -> Option<&Tensor> {
        self.order.as_ref().map(|o| &o.sorted)
    }

    /// Where the sequences went; none if they were sorted already.
    pub fn unsorted_indices(&self) -> Option<&Tensor> {
        self.order.as_ref().map(|o| &o.unsorted)
    }

    /// The lengths of the sequences, in the order they were given.
    pub fn lengths(&self) -> Result<Vec<usize>> {
        let sorted: Vec<usize> = (0..self.batch_sizes.first().copied().unwrap_or(0))
            .map(|b| self.batch_sizes.partition_point(|&size| size > b))
            .collect();
        match self.unsorted_indices() {
            Some(places) => Ok(places.to_vec::<i64>()?.into_iter().map(|place| sorted[place as usize]).collect()),
            None => Ok(sorted),
        }
    }

    /// The same sequences with other elements, one for each.
    pub(super) fn with_data(&self, data: Tensor) -> Self {
        Self { data, ..self.clone() }
    }

    /// Rows of `[.., batch, ..]` along `dim` in the order of packing.
    pub(super) fn sort(&self, t: &Tensor, dim: isize) -> Result<Tensor> {
        self.sorted_indices().map_or(Ok(t.clone()), |order| t.index_select(dim, order))
    }

    /// Rows in the order the sequences were given.
    pub(super) fn unsort(&self, t: &Tensor, dim: isize) -> Result<Tensor> {
        self.unsorted_indices().map_or(Ok(t.clone()), |order| t.index_select(dim, order))
    }
}

fn indices(values: impl IntoIterator<Item = usize>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_iter(values.into_iter().map(|i| i as i64))?.to(like.device())
}

/// How many of `lengths` are longer than 0, 1, 2, …
fn batch_sizes(lengths: &[usize]) -> Vec<usize> {
    let steps = lengths.iter().copied().max().unwrap_or(0);
    (0..steps).map(|t| lengths.iter().filter(|&&n| n > t).count()).collect()
}

/// The order of packing: longest first, or unchanged if `enforce_sorted` requires that order already.
fn packing_order(name: &str, lengths: &[usize], enforce_sorted: bool) -> Result<Vec<usize>> {
    if lengths.is_empty() || lengths.contains(&0) {
        return Err(Error::value(format!(
            "{name}: expected at least one sequence and no empty one, got lengths {lengths:?}"
        )));
    }
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    if enforce_sorted {
        if !lengths.is_sorted_by(|a, b| a >= b) {
            return Err(Error::value(format!(
                "{name}: lengths must be sorted in decreasing order when enforce_sorted is true, got {lengths:?}; pass \
                 enforce_sorted=false to have them sorted"
            )));
        }
    } else {
        order.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
    }
    Ok(order)
}

/// Takes the padding out of `[length, batch, ..]` (`[batch, length, ..]` with `batch_first`). With `enforce_sorted`,
/// PyTorch's default, the lengths must not increase.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{pack_padded_sequence, pad_packed_sequence};
/// use rushlight::Tensor;
/// let x = Tensor::new([[1.0f32, 0.0], [2.0, 3.0]])?;
/// let packed = pack_padded_sequence(&x, &[1, 2], true, false)?;
/// assert_eq!(packed.data().to_vec::<f32>()?, [2.0, 1.0, 3.0]);
/// let (padded, lengths) = pad_packed_sequence(&packed, true, -1.0, None)?;
/// assert_eq!(padded.to_vec::<f32>()?, [1.0, -1.0, 2.0, 3.0]);
/// assert_eq!(lengths, [1, 2]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn pack_padded_sequence(
    input: &Tensor,
    lengths: &[usize],
    batch_first: bool,
    enforce_sorted: bool,
) -> Result<PackedSequence> {
    let name = "pack_padded_sequence";
    let &[first, second, ref rest @ ..] = input.shape() else {
        return Err(Error::shape(format!("{name}: expected at least 2 dimensions, got shape {:?}", input.shape())));
    };
    let (steps, batch) = if batch_first { (second, first) } else { (first, second) };
    if lengths.len() != batch {
        return Err(Error::value(format!(
            "{name}: expected one length for each of {batch} sequences, got {}",
            lengths.len()
        )));
    }
    let order = packing_order(name, lengths, enforce_sorted)?;
    if let Some(long) = lengths.iter().find(|&&n| n > steps) {
        return Err(Error::value(format!("{name}: a length is {long}, but the input has {steps} steps")));
    }
    let sizes = batch_sizes(lengths);
    let rows = rows(&sizes, |t, b| if batch_first { order[b] * steps + t } else { t * batch + order[b] });
    let mut flat = vec![steps * batch];
    flat.extend_from_slice(rest);
    let data = input.reshape(&flat)?.index_select(0, &indices(rows, input)?)?;
    let order = if enforce_sorted { None } else { Some(Order::new(&order, input)?) };
    Ok(PackedSequence { data, batch_sizes: sizes, order })
}

/// For each packed element, at step `t` of the `b`-th longest sequence, its place.
fn rows(sizes: &[usize], place: impl Fn(usize, usize) -> usize) -> Vec<usize> {
    sizes.iter().enumerate().flat_map(|(t, &size)| (0..size).map(move |b| (t, b))).map(|(t, b)| place(t, b)).collect()
}

/// Puts padding back in: `[length, batch, ..]` (`[batch, length, ..]` with `batch_first`), and the lengths. PyTorch's
/// default for `padding_value` is 0; with `total_length` there are as many steps.
pub fn pad_packed_sequence(
    sequence: &PackedSequence,
    batch_first: bool,
    padding_value: f64,
    total_length: Option<usize>,
) -> Result<(Tensor, Vec<usize>)> {
    let longest = sequence.batch_sizes.len();
    let steps = total_length.unwrap_or(longest);
    if steps < longest {
        return Err(Error::value(format!(
            "pad_packed_sequence: expected total_length to be at least the length of the longest sequence in input, but got \
             total_length={steps} and max sequence length being {longest}"
        )));
    }
    let batch = sequence.batch_sizes.first().copied().unwrap_or(0);
    let order: Vec<usize> = match sequence.sorted_indices() {
        Some(sorted) => sorted.to_vec::<i64>()?.into_iter().map(|i| i as usize).collect(),
        None => (0..batch).collect(),
    };
    let rows =
        rows(&sequence.batch_sizes, |t, b| if batch_first { order[b] * steps + t } else { t * batch + order[b] });
    let padded = spread(&sequence.data, rows, [steps, batch], batch_first, padding_value)?;
    Ok((padded, sequence.lengths()?))
}

/// Rows put at their places among `steps` times `batch`, the others being `padding_value`.
fn spread(
    data: &Tensor,
    rows: Vec<usize>,
    [steps, batch]: [usize; 2],
    batch_first: bool,
    padding_value: f64,
) -> Result<Tensor> {
    let total =
        steps.checked_mul(batch).ok_or_else(|| Error::value("padded sequences: larger than memory can address"))?;
    let (mut flat, mut shape) = (vec![total], if batch_first { vec![batch, steps] } else { vec![steps, batch] });
    let rest = data.shape().get(1..).unwrap_or(&[]);
    flat.extend_from_slice(rest);
    shape.extend_from_slice(rest);
    let padding = Tensor::full_with(&flat, padding_value, (data.dtype(), data.device()))?;
    padding.index_copy(0, &indices(rows, data)?, data)?.reshape(&shape)
}

/// Sequences, `[length, ..]` each, without padding. With `enforce_sorted`, PyTorch's default, lengths must not
/// increase.
pub fn pack_sequence(sequences: &[&Tensor], enforce_sorted: bool) -> Result<PackedSequence> {
    let lengths = lengths_of("pack_sequence", sequences)?;
    let joined = cat(sequences, 0).map_err(|e| e.within("pack_sequence"))?;
    let order = packing_order("pack_sequence", &lengths, enforce_sorted)?;
    let starts = starts(&lengths);
    let sizes = batch_sizes(&lengths);
    let rows = rows(&sizes, |t, b| starts[order[b]] + t);
    let data = joined.index_select(0, &indices(rows, &joined)?)?;
    let order = if enforce_sorted { None } else { Some(Order::new(&order, &joined)?) };
    Ok(PackedSequence { data, batch_sizes: sizes, order })
}

/// Which side of a sequence gets the padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingSide {
    /// Before the first step.
    Left,
    /// After the last step.
    #[default]
    Right,
}

/// Sequences, `[length, ..]` each, padded to the longest: `[length, batch, ..]` (`[batch, length, ..]` with
/// `batch_first`). PyTorch's default for `padding_value` is 0.
pub fn pad_sequence(
    sequences: &[&Tensor],
    batch_first: bool,
    padding_value: f64,
    padding_side: PaddingSide,
) -> Result<Tensor> {
    let lengths = lengths_of("pad_sequence", sequences)?;
    let joined = cat(sequences, 0).map_err(|e| e.within("pad_sequence"))?;
    let (steps, batch) = (lengths.iter().copied().max().unwrap_or(0), sequences.len());
    let mut rows = Vec::with_capacity(joined.shape().first().copied().unwrap_or(0));
    for (b, &n) in lengths.iter().enumerate() {
        let first = if padding_side == PaddingSide::Left { steps - n } else { 0 };
        rows.extend((first..first + n).map(|t| if batch_first { b * steps + t } else { t * batch + b }));
    }
    spread(&joined, rows, [steps, batch], batch_first, padding_value)
}

fn lengths_of(name: &str, sequences: &[&Tensor]) -> Result<Vec<usize>> {
    if sequences.is_empty() {
        return Err(Error::value(format!("{name}: received an empty list of sequences")));
    }
    let length = |t: &&Tensor| t.shape().first().copied();
    sequences
        .iter()
        .map(|t| length(t).ok_or_else(|| Error::shape(format!("{name}: a sequence must have at least one dimension"))))
        .collect()
}

fn starts(lengths: &[usize]) -> Vec<usize> {
    lengths
        .iter()
        .scan(0, |next, &n| {
            let start = *next;
            *next += n;
            Some(start)
        })
        .collect()
}
