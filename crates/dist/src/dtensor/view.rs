//! The sharding rule of `view`: which dimensions of the old and the new shape hold the same chunks.

use super::rules::Signature;
use rushlight_core::{Error, Result};

/// Labels of a tensor before and after `view`. Dimensions fall into groups of equal size; the first dimension of a
/// group is sharded before and after if the ranks divide both.
pub(super) fn labels(name: &str, s: &mut Signature, from: &[usize], to: &[usize]) -> Result<()> {
    if from.iter().product::<usize>() != to.iter().product::<usize>() {
        return Err(Error::shape(format!("{name}: shape {to:?} is invalid for a tensor of shape {from:?}")));
    }
    s.shape = to.to_vec();
    s.inputs[0] = vec![None; from.len()];
    s.output = vec![None; to.len()];
    if from.contains(&0) || to.contains(&0) {
        return Ok(());
    }
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let (first_i, first_j) = (i, j);
        let mut size = (1, 1);
        // At least one dimension of each side, then as many as make the sizes equal.
        loop {
            if size.0 <= size.1 && i < from.len() && (size.0 < size.1 || i == first_i) {
                size.0 *= from[i];
                i += 1;
            } else if j < to.len() && (size.1 < size.0 || j == first_j) {
                size.1 *= to[j];
                j += 1;
            } else {
                break;
            }
        }
        // Leading ones of a group are not what is sharded.
        let lead = |shape: &[usize], at: usize, end: usize| (at..end).find(|&d| shape[d] != 1);
        if let (Some(a), Some(b)) = (lead(from, first_i, i), lead(to, first_j, j)) {
            let label = s.label(from[a], true, None);
            if from[a] != to[b] {
                s.labels[label].even = vec![from[a], to[b]];
            }
            s.inputs[0][a] = Some(label);
            s.output[b] = Some(label);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::dtensor::{Rule, rules::Signature};

    fn of(from: &[usize], to: &[usize]) -> Signature {
        Rule::View(to.to_vec()).signature("view", &[from]).unwrap()
    }

    #[test]
    fn heads_split_and_join() {
        let split = of(&[2, 5, 12], &[2, 5, 4, 3]);
        assert_eq!(
            (&split.inputs[0][..], &split.output[..]),
            (&[Some(0), Some(1), Some(2)][..], &[Some(0), Some(1), Some(2), None][..])
        );
        assert_eq!(split.labels[2].even, [12, 4]);
        let join = of(&[2, 5, 4, 3], &[10, 12]);
        assert_eq!(join.output, [Some(0), Some(1)]);
        assert_eq!(join.inputs[0], [Some(0), None, Some(1), None]);
    }

    #[test]
    fn ones_and_scalars() {
        assert_eq!(of(&[1, 6], &[6]).inputs[0], [None, Some(0)]);
        assert_eq!(of(&[6], &[1, 6, 1]).output, [None, Some(0), None]);
        assert!(of(&[1], &[]).output.is_empty());
        assert!(Rule::View(vec![5]).signature("view", &[&[6]]).is_err());
    }
}
