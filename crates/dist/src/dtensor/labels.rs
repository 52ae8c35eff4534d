//! Sharding rules whose dimensions have names.

use super::rules::{Linearity, Signature};
use crate::comm::ReduceOp;
use rushlight_core::{Error, Result};

/// The names of the dimensions of an op's inputs and output. [`super::Rule::labels`] reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    pub(super) inputs: Vec<Vec<Option<char>>>,
    pub(super) added: Vec<usize>,
    pub(super) output: Vec<Option<char>>,
    pub(super) linearity: Linearity,
}

fn bad(text: &str, why: &str) -> Error {
    Error::value(format!("sharding rule {text:?}: {why}"))
}

fn names(text: &str, of: &str) -> Result<Vec<Option<char>>> {
    let name = |c: char| match c {
        '_' => Ok(None),
        c if c.is_ascii_alphabetic() => Ok(Some(c)),
        _ => Err(bad(text, "a dimension is a letter or _")),
    };
    let found = of.trim().chars().map(name).collect::<Result<Vec<_>>>()?;
    let mut letters: Vec<char> = found.iter().flatten().copied().collect();
    letters.sort_unstable();
    if letters.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(bad(text, "a letter stands twice in one tensor"));
    }
    Ok(found)
}

pub(super) fn parse(text: &str) -> Result<Labels> {
    let (word, row) = text.split_once(':').unwrap_or(("", text));
    let linearity = match word.trim() {
        "" => Linearity::None,
        "sum" => Linearity::Sum,
        "product" => Linearity::Product,
        "first" => Linearity::First,
        _ => return Err(bad(text, "before the colon stands sum, product or first")),
    };
    let (inputs, output) = row.split_once("->").ok_or_else(|| bad(text, "there is no ->"))?;
    let output = names(text, output)?;
    let (mut labels, mut added) = (Vec::new(), Vec::new());
    for (i, input) in inputs.split(',').enumerate() {
        let plain = input.trim().strip_prefix('+');
        if plain.is_some() {
            added.push(i);
        }
        labels.push(names(text, plain.unwrap_or(input))?);
    }
    if output.iter().flatten().any(|c| !labels.iter().flatten().any(|l| *l == Some(*c))) {
        return Err(bad(text, "a letter of the output is of no input"));
    }
    Ok(Labels { inputs: labels, added, output, linearity })
}

/// The signature for inputs of these shapes, of which there are as many as the rule has.
pub(super) fn signature(name: &str, s: &mut Signature, labels: &Labels, shapes: &[&[usize]]) -> Result<()> {
    let mut known: Vec<(char, usize)> = Vec::new();
    for (i, (letters, shape)) in labels.inputs.iter().zip(shapes).enumerate() {
        if letters.len() != shape.len() {
            return Err(Error::shape(format!("{name}: an input of {} dimensions has shape {shape:?}", letters.len())));
        }
        for (letter, &size) in letters.iter().zip(*shape) {
            let Some(letter) = *letter else {
                s.inputs[i].push(None);
                continue;
            };
            let number = match known.iter().find(|(known, _)| *known == letter) {
                Some(&(_, number)) if s.labels[number].size == size => number,
                Some(_) => return Err(Error::shape(format!("{name}: sizes of inputs of shapes {shapes:?} differ"))),
                None => {
                    let kept = labels.output.contains(&Some(letter));
                    let number = s.label(size, kept, (!kept).then_some(ReduceOp::Sum));
                    s.labels[number].filled = letter.is_ascii_uppercase();
                    known.push((letter, number));
                    number
                }
            };
            s.inputs[i].push(Some(number));
        }
    }
    for (dim, letter) in labels.output.iter().enumerate() {
        let found = letter.and_then(|letter| known.iter().find(|(known, _)| *known == letter));
        s.output.push(found.map(|(_, number)| *number));
        s.shape.push(found.map_or(0, |(_, number)| s.labels[*number].size));
        if found.is_none() {
            s.open.push(dim);
        }
    }
    s.added.clone_from(&labels.added);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::dtensor::Rule;

    #[test]
    fn a_convolution() {
        let rule = Rule::labels("NC__, OC__, +O -> NO__").unwrap();
        let s = rule.signature("conv2d", &[&[2, 3, 5, 5], &[4, 3, 3, 3], &[4]]).unwrap();
        assert_eq!((&s.shape[..], &s.open[..], &s.added[..]), (&[2, 4, 0, 0][..], &[2, 3][..], &[2][..]));
        assert_eq!(s.inputs[1], [Some(2), Some(1), None, None]);
        assert!(s.labels[1].reduced.is_some() && !s.labels[1].kept && s.labels[0].kept);
        assert!(s.labels[2].filled);
        assert!(rule.signature("conv2d", &[&[2, 3, 5, 5], &[4, 2, 3, 3], &[4]]).is_err());
        assert!(rule.signature("conv2d", &[&[2, 3, 5], &[4, 3, 3], &[4]]).is_err());
        assert!(rule.signature("conv2d", &[&[2, 3, 5, 5], &[4, 3, 3, 3]]).is_err());
    }

    #[test]
    fn texts_that_are_no_rules() {
        for text in ["ab", "ab->c", "aa->a", "a1->a", "some: a->a", "a,b->ab:"] {
            assert!(Rule::labels(text).is_err(), "{text}");
        }
        assert!(Rule::labels("sum: a_ -> a").is_ok() && Rule::labels("->").is_ok());
    }
}
