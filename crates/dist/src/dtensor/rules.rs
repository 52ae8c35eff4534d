//! Sharding rules: for each kind of op, which placements of its inputs it computes on without communication.
//!
//! A rule names the dimensions of inputs and output by labels, as `einsum` does. A label that is sharded is sharded in
//! every input that has it; the other inputs are replicated. In the output it is sharded too, or, if the op sums over
//! it, the output is partial.

use super::Placement;
use super::labels::{self, Labels};
use super::view;
use crate::comm::ReduceOp;
use rushlight_core::{Error, Result};

/// Whether an op on summands gives summands of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linearity {
    /// It does not: `relu`.
    None,
    /// If all inputs are partial: `add`, `neg`, `to`.
    Sum,
    /// If one input is partial and the others are replicated: `mul`.
    Product,
    /// If the first input is partial and the others are replicated: `div`.
    First,
}

/// What an op does with the dimensions that it reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Adds.
    Sum,
    /// Averages.
    Mean,
    /// Takes the largest.
    Max,
    /// Takes the smallest.
    Min,
    /// Anything else: the whole dimension must be there.
    Other,
}

/// The sharding rule of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Element by element, with broadcasting.
    Pointwise(Linearity),
    /// `matmul`, with batch dimensions.
    MatMul,
    /// `linear`: input, weight `[out, in]`, and bias if there are three.
    Linear,
    /// A reduction of some dimensions.
    Reduce {
        /// Which.
        dims: Vec<usize>,
        /// Whether they stay, with size 1.
        keepdim: bool,
        /// How.
        how: Reduction,
    },
    /// Dimension `i` of the output is dimension `dims[i]` of the input.
    Permute(Vec<usize>),
    /// The same elements under another shape.
    View(Vec<usize>),
    /// Computes along some dimensions of the first input, which must be whole: `softmax`, `layer_norm`. Other inputs
    /// are parameters.
    Along(Vec<usize>),
    /// Joins tensors along a dimension.
    Cat(usize),
    /// `embedding`: weight and indices. With a sharded vocabulary the output is partial: the local op must give zeros
    /// for indices of other ranks.
    Embedding,
    /// `scaled_dot_product_attention`: query, key, value, by batch and heads.
    Attention,
    /// A loss of class scores `[N, C, …]` and targets `[N, …]`: `None` for the losses of all samples.
    Loss(Option<Reduction>),
    /// Anything whose dimensions have names, as [`Rule::labels`] reads them.
    Labels(Labels),
}

/// What sharding a label means.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) size: usize,
    /// The output's placement if it has no such dimension; `None` if the label cannot be sharded.
    pub(super) reduced: Option<ReduceOp>,
    pub(super) kept: bool,
    /// Sizes that the number of ranks must divide.
    pub(super) even: Vec<usize>,
    /// Whether every rank must have a part.
    pub(super) filled: bool,
}

/// A rule for certain shapes.
pub(super) struct Signature {
    pub(super) labels: Vec<Label>,
    /// Labels of each input's dimensions.
    pub(super) inputs: Vec<Vec<Option<usize>>>,
    pub(super) output: Vec<Option<usize>>,
    pub(super) shape: Vec<usize>,
    /// Rows with partial inputs.
    pub(super) partial: Vec<(Vec<Placement>, Placement)>,
    /// Inputs that are added to what the ranks sum up: a bias.
    pub(super) added: Vec<usize>,
    /// Dimensions of the output whose size the op decides.
    pub(super) open: Vec<usize>,
}

impl Signature {
    fn new(inputs: usize) -> Self {
        Self {
            labels: Vec::new(),
            inputs: vec![Vec::new(); inputs],
            output: Vec::new(),
            shape: Vec::new(),
            partial: Vec::new(),
            added: Vec::new(),
            open: Vec::new(),
        }
    }

    pub(super) fn label(&mut self, size: usize, kept: bool, reduced: Option<ReduceOp>) -> usize {
        self.labels.push(Label { size, reduced, kept, even: Vec::new(), filled: false });
        self.labels.len() - 1
    }

    fn kept(&mut self, size: usize) -> usize {
        self.label(size, true, None)
    }
}

fn expect(name: &str, shapes: &[&[usize]], least: usize, most: usize) -> Result<()> {
    match (least..=most).contains(&shapes.len()) {
        true => Ok(()),
        false => {
            Err(Error::value(format!("{name}: {} distributed inputs; {least} to {most} are possible", shapes.len())))
        }
    }
}

/// Sizes after broadcasting.
fn broadcast(name: &str, shapes: &[&[usize]]) -> Result<Vec<usize>> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for shape in shapes {
        for (o, &n) in out[rank - shape.len()..].iter_mut().zip(*shape) {
            if *o != n && *o != 1 && n != 1 {
                return Err(Error::shape(format!("{name}: shapes {shapes:?} cannot be broadcast together")));
            }
            *o = if *o == 1 { n } else { *o };
        }
    }
    Ok(out)
}

impl Rule {
    /// A rule as text: `"NC__, OC__, +O -> NO__"` for a convolution. Each dimension has a letter if it can be sharded
    /// and `_` if it must be whole; a letter that the output lacks is summed over. A capital must leave no rank without
    /// a part. An input after `+` is added to the result. A [`Linearity`] may stand before: `"sum: a_ -> a"`. The op
    /// decides the size of `_` in the output.
    pub fn labels(text: &str) -> Result<Self> {
        Ok(Rule::Labels(labels::parse(text)?))
    }

    /// The rule for inputs of these shapes.
    pub(super) fn signature(&self, name: &str, shapes: &[&[usize]]) -> Result<Signature> {
        let mut s = Signature::new(shapes.len());
        match self {
            Rule::Pointwise(linearity) => {
                expect(name, shapes, 1, usize::MAX)?;
                s.shape = broadcast(name, shapes)?;
                broadcast_labels(&mut s, shapes, &[]);
                s.partial = linear_rows(*linearity, shapes.len());
            }
            Rule::MatMul => {
                expect(name, shapes, 2, 2)?;
                matmul(name, &mut s, shapes[0], shapes[1])?;
            }
            Rule::Linear => {
                expect(name, shapes, 2, 3)?;
                let (x, w) = (shapes[0], shapes[1]);
                let (Some((&k, rows)), [n, inner]) = (x.split_last(), w) else {
                    return Err(Error::shape(format!("{name}: input {x:?} and weight {w:?}")));
                };
                if k != *inner {
                    return Err(Error::shape(format!("{name}: input {x:?} and weight {w:?} cannot be multiplied")));
                }
                let mut ends: Vec<Option<usize>> = rows.iter().map(|&r| Some(s.kept(r))).collect();
                let (contracted, out) = (s.label(k, false, Some(ReduceOp::Sum)), s.kept(*n));
                s.output = ends.clone();
                s.output.push(Some(out));
                ends.push(Some(contracted));
                s.inputs[0] = ends;
                s.inputs[1] = vec![Some(out), Some(contracted)];
                if shapes.len() == 3 {
                    s.inputs[2] = vec![Some(out)];
                    s.added.push(2);
                }
                s.shape = [rows, &[*n]].concat();
            }
            Rule::Reduce { dims, keepdim, how } => {
                expect(name, shapes, 1, 1)?;
                reduce(&mut s, shapes[0], dims, *keepdim, *how);
                if matches!(how, Reduction::Sum | Reduction::Mean) {
                    s.partial = linear_rows(Linearity::Sum, 1);
                }
            }
            Rule::Permute(dims) => {
                expect(name, shapes, 1, 1)?;
                s.inputs[0] = shapes[0].iter().map(|&n| Some(s.kept(n))).collect();
                s.output = dims.iter().map(|&d| s.inputs[0].get(d).copied().flatten()).collect();
                s.shape = dims.iter().map(|&d| shapes[0].get(d).copied().unwrap_or(1)).collect();
                s.partial = linear_rows(Linearity::Sum, 1);
            }
            Rule::View(to) => {
                expect(name, shapes, 1, 1)?;
                view::labels(name, &mut s, shapes[0], to)?;
                s.partial = linear_rows(Linearity::Sum, 1);
            }
            Rule::Along(dims) => {
                expect(name, shapes, 1, usize::MAX)?;
                let free = |d: usize| !dims.contains(&d);
                s.inputs[0] = shapes[0].iter().enumerate().map(|(d, &n)| free(d).then(|| s.kept(n))).collect();
                for (labels, shape) in s.inputs.iter_mut().zip(shapes).skip(1) {
                    *labels = vec![None; shape.len()];
                }
                s.output = s.inputs[0].clone();
                s.shape = shapes[0].to_vec();
            }
            Rule::Cat(dim) => {
                expect(name, shapes, 1, usize::MAX)?;
                let labels: Vec<Option<usize>> =
                    shapes[0].iter().enumerate().map(|(d, &n)| (d != *dim).then(|| s.kept(n))).collect();
                s.shape = shapes[0].to_vec();
                if let Some(joined) = s.shape.get_mut(*dim) {
                    *joined = shapes.iter().map(|shape| shape.get(*dim).copied().unwrap_or(0)).sum();
                }
                s.inputs = vec![labels.clone(); shapes.len()];
                s.output = labels;
                s.partial = linear_rows(Linearity::Sum, shapes.len());
            }
            Rule::Embedding => {
                expect(name, shapes, 2, 2)?;
                let [vocabulary, width] = shapes[0] else {
                    return Err(Error::shape(format!("{name}: the weight must be a matrix, not {:?}", shapes[0])));
                };
                let (v, e) = (s.label(*vocabulary, false, Some(ReduceOp::Sum)), s.kept(*width));
                s.inputs[0] = vec![Some(v), Some(e)];
                s.inputs[1] = shapes[1].iter().map(|&n| Some(s.kept(n))).collect();
                s.output = s.inputs[1].clone();
                s.output.push(Some(e));
                s.shape = [shapes[1], &[*width]].concat();
            }
            Rule::Attention => {
                expect(name, shapes, 3, 3)?;
                let (q, v) = (shapes[0], shapes[2]);
                let rank = q.len();
                if rank < 3 || shapes.iter().any(|t| t.len() != rank || t[..rank - 2] != q[..rank - 2]) {
                    return Err(Error::shape(format!("{name}: query, key and value have shapes {shapes:?}")));
                }
                let mut labels: Vec<Option<usize>> = q[..rank - 2].iter().map(|&n| Some(s.kept(n))).collect();
                labels.extend([None, None]);
                s.inputs = vec![labels.clone(); 3];
                s.output = labels;
                s.shape = [&q[..rank - 1], &v[rank - 1..]].concat();
            }
            Rule::Loss(reduction) => {
                expect(name, shapes, 2, 2)?;
                let (scores, targets) = (shapes[0], shapes[1]);
                let class = if scores.len() == 1 { 0 } else { 1 };
                let (kept, op) = match reduction {
                    None => (true, None),
                    Some(Reduction::Sum) => (false, Some(ReduceOp::Sum)),
                    Some(_) => (false, None),
                };
                let samples: Vec<Option<usize>> =
                    targets.iter().map(|&n| (kept || op.is_some()).then(|| s.label(n, kept, op))).collect();
                s.inputs[1] = samples.clone();
                let mut labels = samples.clone();
                labels.insert(class.min(labels.len()), None);
                s.inputs[0] = labels;
                if kept {
                    (s.output, s.shape) = (samples, targets.to_vec());
                }
            }
            Rule::Labels(labels) => {
                expect(name, shapes, labels.inputs.len(), labels.inputs.len())?;
                labels::signature(name, &mut s, labels, shapes)?;
                s.partial = linear_rows(labels.linearity, shapes.len());
            }
        }
        Ok(s)
    }
}

/// Rows with partial inputs of a pointwise op.
fn linear_rows(linearity: Linearity, inputs: usize) -> Vec<(Vec<Placement>, Placement)> {
    let partial = [Placement::Partial(ReduceOp::Sum), Placement::Partial(ReduceOp::Mean)];
    let one_of = |i: usize, p: Placement| {
        let mut row = vec![Placement::Replicate; inputs];
        row[i] = p;
        (row, p)
    };
    match linearity {
        Linearity::None => Vec::new(),
        Linearity::Sum => partial.iter().map(|p| (vec![*p; inputs], *p)).collect(),
        Linearity::Product => partial.iter().flat_map(|p| (0..inputs).map(move |i| one_of(i, *p))).collect(),
        Linearity::First => partial.iter().map(|p| one_of(0, *p)).collect(),
    }
}

/// Labels of tensors that are broadcast together, beside dimensions at their ends that have other labels.
fn broadcast_labels(s: &mut Signature, shapes: &[&[usize]], ends: &[usize]) {
    let rank = s.shape.len();
    let labels: Vec<usize> = s.shape.clone().into_iter().map(|n| s.kept(n)).collect();
    for (at, shape) in shapes.iter().enumerate() {
        let lead = &shape[..shape.len() - ends.get(at).copied().unwrap_or(0)];
        let skip = rank - lead.len();
        s.inputs[at] =
            lead.iter().enumerate().map(|(d, &n)| (n == s.shape[skip + d]).then_some(labels[skip + d])).collect();
    }
    s.output = labels.into_iter().map(Some).collect();
}

fn matmul(name: &str, s: &mut Signature, a: &[usize], b: &[usize]) -> Result<()> {
    let bad = || Error::shape(format!("{name}: shapes {a:?} and {b:?} cannot be multiplied"));
    let (Some(&k), inner) = (a.last(), if b.len() == 1 { b.first() } else { b.get(b.len().wrapping_sub(2)) }) else {
        return Err(bad());
    };
    if inner != Some(&k) {
        return Err(bad());
    }
    let (ends_a, ends_b) = (a.len().min(2), b.len().min(2));
    let (lead_a, lead_b) = (&a[..a.len() - ends_a], &b[..b.len() - ends_b]);
    s.shape = broadcast(name, &[lead_a, lead_b])?;
    broadcast_labels(s, &[a, b], &[ends_a, ends_b]);
    let contracted = s.label(k, false, Some(ReduceOp::Sum));
    if ends_a == 2 {
        let m = s.kept(a[a.len() - 2]);
        s.inputs[0].push(Some(m));
        s.output.push(Some(m));
        s.shape.push(a[a.len() - 2]);
    }
    s.inputs[0].push(Some(contracted));
    s.inputs[1].push(Some(contracted));
    if ends_b == 2 {
        let n = s.kept(b[b.len() - 1]);
        s.inputs[1].push(Some(n));
        s.output.push(Some(n));
        s.shape.push(b[b.len() - 1]);
    }
    Ok(())
}

fn reduce(s: &mut Signature, shape: &[usize], dims: &[usize], keepdim: bool, how: Reduction) {
    let op = match how {
        Reduction::Sum => Some(ReduceOp::Sum),
        Reduction::Mean => Some(ReduceOp::Mean),
        Reduction::Max => Some(ReduceOp::Max),
        Reduction::Min => Some(ReduceOp::Min),
        Reduction::Other => None,
    };
    for (d, &n) in shape.iter().enumerate() {
        if !dims.contains(&d) {
            let label = s.kept(n);
            s.inputs[0].push(Some(label));
            s.output.push(Some(label));
            s.shape.push(n);
            continue;
        }
        let label = op.map(|op| s.label(n, false, Some(op)));
        if let (Some(label), Some(ReduceOp::Mean)) = (label, op) {
            s.labels[label].even.push(n);
        }
        s.inputs[0].push(label);
        if keepdim {
            s.output.push(None);
            s.shape.push(1);
        }
    }
}
