//! Einstein summation: operands are contracted pair by pair, the pair with the smallest result first, each by one
//! batched product.

use crate::Tensor;
use rushlight_core::{Error, Result};

/// A dimension's name: a letter of the equation, or one covered by `...` (counted from the right).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Hidden(usize),
    Letter(u8),
}

struct Operand {
    tensor: Tensor,
    labels: Vec<Label>,
}

/// Part of an equation: letters, and the position of `...` among them.
struct Term {
    letters: Vec<u8>,
    ellipsis: Option<usize>,
}

fn parse_term(text: &str) -> Result<Term> {
    let mut term = Term { letters: Vec::new(), ellipsis: None };
    let mut rest = text.trim();
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if term.ellipsis.replace(term.letters.len()).is_some() {
                return Err(Error::value(format!("einsum(): found more than one ellipsis in '{}'", text.trim())));
            }
            rest = after;
        } else if c.is_ascii_alphabetic() {
            term.letters.push(c as u8);
            rest = &rest[1..];
        } else if c == ' ' {
            rest = &rest[1..];
        } else {
            return Err(Error::value(format!("einsum(): invalid subscript '{c}', subscripts must be in [a-zA-Z]")));
        }
    }
    Ok(term)
}

impl Term {
    /// The term's labels if `...` covers `hidden` dimensions.
    fn labels(&self, hidden: usize) -> Vec<Label> {
        let mut labels: Vec<Label> = self.letters.iter().map(|&c| Label::Letter(c)).collect();
        if let Some(at) = self.ellipsis {
            labels.splice(at..at, (0..hidden).rev().map(Label::Hidden));
        }
        labels
    }

    fn label_operand(&self, index: usize, tensor: &Tensor) -> Result<Operand> {
        let named = self.letters.len();
        let hidden = tensor.rank().checked_sub(named);
        let labels = match hidden {
            Some(hidden) if hidden == 0 || self.ellipsis.is_some() => self.labels(hidden),
            _ => {
                return Err(Error::shape(format!(
                    "einsum(): the number of subscripts in the equation ({named}) {} the number of dimensions ({}) for operand {index}{}",
                    if self.ellipsis.is_some() { "is more than" } else { "does not match" },
                    tensor.rank(),
                    if self.ellipsis.is_some() { "" } else { " and no ellipsis was given" }
                )));
            }
        };
        Operand { tensor: tensor.clone(), labels }.with_diagonals(index)
    }
}

impl Operand {
    fn position(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|&l| l == label)
    }

    fn size(&self, label: Label) -> Option<usize> {
        self.position(label).map(|d| self.tensor.shape()[d])
    }

    /// Dimensions that share a label become their diagonal.
    fn with_diagonals(mut self, index: usize) -> Result<Self> {
        while let Some((a, b)) = repeated(&self.labels) {
            let (m, n) = (self.tensor.shape()[a], self.tensor.shape()[b]);
            if m != n {
                return Err(Error::shape(format!(
                    "einsum(): subscript {} is repeated for operand {index} but the sizes don't match, {n} != {m}",
                    self.labels[a]
                )));
            }
            let label = self.labels[a];
            self.tensor = self.tensor.diagonal(0, a as isize, b as isize)?;
            self.labels.remove(b);
            self.labels.remove(a);
            self.labels.push(label);
        }
        Ok(self)
    }

    /// Sums away the labels for which `keep` is false.
    fn sum_out(mut self, keep: impl Fn(Label) -> bool) -> Result<Self> {
        let dims: Vec<isize> = (0..self.labels.len()).filter(|&d| !keep(self.labels[d])).map(|d| d as isize).collect();
        if !dims.is_empty() {
            // Integers keep their dtype here, unlike in a plain sum.
            self.tensor = self.tensor.sum(&dims)?.to_dtype(self.tensor.dtype())?;
            self.labels.retain(|&l| keep(l));
        }
        Ok(self)
    }

    fn without(mut self, label: Label) -> Result<Self> {
        if let Some(d) = self.position(label) {
            self.tensor = self.tensor.squeeze([d as isize])?;
            self.labels.remove(d);
        }
        Ok(self)
    }

    /// A view with the dimensions in the order of `labels`; those it does not have are of size one.
    fn aligned(&self, labels: &[Label]) -> Result<Tensor> {
        let order: Vec<isize> = labels.iter().filter_map(|&l| self.position(l)).map(|d| d as isize).collect();
        let mut out = self.tensor.permute(&order)?;
        for (d, &label) in labels.iter().enumerate() {
            if self.position(label).is_none() {
                out = out.unsqueeze(d as isize)?;
            }
        }
        Ok(out)
    }
}

fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|b| labels[..b].iter().position(|l| *l == labels[b]).map(|a| (a, b)))
}

/// The operands multiplied and summed over every label that `keep` rejects.
fn contract(a: Operand, b: Operand, keep: impl Fn(Label) -> bool) -> Result<Operand> {
    let (mut a, mut b) = (a, b);
    // A size of one that meets a larger one is stretched; it takes no part in a product.
    for label in a.labels.clone() {
        match (a.size(label), b.size(label)) {
            (Some(x), Some(y)) if x == y => {}
            (Some(1), Some(_)) => a = a.without(label)?,
            (Some(_), Some(1)) => b = b.without(label)?,
            (Some(x), Some(y)) => {
                return Err(Error::shape(format!(
                    "einsum(): operands do not broadcast: {label} has size {x} in shape {:?} and {y} in shape {:?}",
                    a.tensor.shape(),
                    b.tensor.shape()
                )));
            }
            _ => {}
        }
    }
    let in_b = b.labels.clone();
    a = a.sum_out(|l| keep(l) || in_b.contains(&l))?;
    let in_a = a.labels.clone();
    b = b.sum_out(|l| keep(l) || in_a.contains(&l))?;

    let pick = |of: &[Label], other: &[Label], shared: bool, kept: bool| -> Vec<Label> {
        of.iter().copied().filter(|&l| other.contains(&l) == shared && keep(l) == kept).collect()
    };
    let batch = pick(&a.labels, &b.labels, true, true);
    let inner = pick(&a.labels, &b.labels, true, false);
    let rows = pick(&a.labels, &b.labels, false, true);
    let columns = pick(&b.labels, &a.labels, false, true);
    let labels = [&batch[..], &rows, &columns].concat();
    if inner.is_empty() {
        return Ok(Operand { tensor: a.aligned(&labels)?.mul(&b.aligned(&labels)?)?, labels });
    }
    let sizes = |of: &Operand, labels: &[Label]| -> Vec<usize> { labels.iter().filter_map(|&l| of.size(l)).collect() };
    let (batch_shape, row_shape, column_shape) = (sizes(&a, &batch), sizes(&a, &rows), sizes(&b, &columns));
    let (m, n) = (row_shape.iter().product(), column_shape.iter().product());
    let k: usize = sizes(&a, &inner).iter().product();
    let matrices = |of: &Operand, first: &[Label], second: &[Label], size: [usize; 2]| {
        of.aligned(&[&batch[..], first, second].concat())?.reshape(&[&batch_shape[..], &size].concat())
    };
    let left = matrices(&a, &rows, &inner, [m, k])?;
    let right = matrices(&b, &inner, &columns, [k, n])?;
    let tensor = left.matmul(&right)?.reshape(&[batch_shape, row_shape, column_shape].concat())?;
    Ok(Operand { tensor, labels })
}

/// Sums of products named by an equation, as PyTorch's `torch.einsum`: a letter per dimension, `...` for the others,
/// repeated letters for diagonals; without `->` the letters that occur once are kept, in alphabetical order.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, einsum};
/// let (a, b) = (Tensor::ones([2, 3])?, Tensor::ones([4, 3])?);
/// assert_eq!(einsum("ij,kj->ik", &[&a, &b])?.to_vec::<f32>()?, [3.0; 8]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let terms = left.split(',').map(parse_term).collect::<Result<Vec<_>>>()?;
    if terms.len() != operands.len() {
        let more = if terms.len() < operands.len() { "more" } else { "fewer" };
        return Err(Error::value(format!(
            "einsum(): {more} operands were provided ({}) than specified in the equation ({})",
            operands.len(),
            terms.len()
        )));
    }
    let mut named = Vec::new();
    for (i, (term, tensor)) in terms.iter().zip(operands).enumerate() {
        named.push(term.label_operand(i, tensor)?);
    }
    let hidden = terms.iter().zip(operands).map(|(t, x)| x.rank() - t.letters.len()).max().unwrap_or(0);
    let output = match right {
        Some(text) => parse_term(text)?.labels(hidden),
        None => {
            let mut letters: Vec<u8> = terms.iter().flat_map(|t| &t.letters).copied().collect();
            letters.sort_unstable();
            let once: Vec<u8> =
                letters.iter().copied().filter(|c| letters.iter().filter(|d| *d == c).count() == 1).collect();
            Term { letters: once, ellipsis: Some(0) }.labels(hidden)
        }
    };
    if let Some((a, _)) = repeated(&output) {
        return Err(Error::value(format!(
            "einsum(): output subscript {} appears more than once in the output",
            output[a]
        )));
    }
    if let Some(label) = output.iter().find(|l| !named.iter().any(|o| o.labels.contains(l))) {
        return Err(Error::value(format!(
            "einsum(): output subscript {label} does not appear in the equation for any input operand"
        )));
    }
    while let Some((i, j)) = cheapest_pair(&named, &output) {
        let mut b = named.remove(j);
        let mut a = named.remove(i);
        // The product's columns lie beside each other: they are the labels that come last in the output.
        let place = |of: &Operand, other: &Operand| {
            output.iter().rposition(|l| of.labels.contains(l) && !other.labels.contains(l))
        };
        if place(&a, &b) > place(&b, &a) && place(&b, &a).is_some() {
            std::mem::swap(&mut a, &mut b);
        }
        let others: Vec<Label> = named.iter().flat_map(|o| &o.labels).copied().collect();
        named.insert(i, contract(a, b, |l| output.contains(&l) || others.contains(&l))?);
    }
    let Some(done) = named.pop() else { return Err(Error::value("einsum(): must provide at least one operand")) };
    done.sum_out(|l| output.contains(&l))?.aligned(&output)
}

/// The two operands, in order, whose product is smallest once summed; of equals the one with the fewest
/// multiplications, then the leftmost. Looks at the first operands only where there are very many.
fn cheapest_pair(operands: &[Operand], output: &[Label]) -> Option<(usize, usize)> {
    const LOOKS_AT: usize = 16;
    let pairs = (1..operands.len().min(LOOKS_AT)).flat_map(|j| (0..j).map(move |i| (i, j)));
    pairs.min_by_key(|&(i, j)| {
        let (a, b) = (&operands[i], &operands[j]);
        let size = |l: Label| a.size(l).unwrap_or(1).max(b.size(l).unwrap_or(1));
        let kept = |l: Label| {
            output.contains(&l) || operands.iter().enumerate().any(|(k, o)| k != i && k != j && o.labels.contains(&l))
        };
        let labels = a.labels.iter().chain(b.labels.iter().filter(|l| !a.labels.contains(l)));
        let (mut result, mut products) = (1usize, 1usize);
        for &label in labels {
            products = products.saturating_mul(size(label));
            if kept(label) {
                result = result.saturating_mul(size(label));
            }
        }
        (result, products, i, j)
    })
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Hidden(_) => f.write_str("..."),
            Label::Letter(c) => write!(f, "{}", *c as char),
        }
    }
}
