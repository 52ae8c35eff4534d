//! Layers split into stages by their costs.

use rushlight_core::{Error, Result};

/// Splits layers, in order, into stages so that the costliest stage costs as little as possible. Returns the first
/// layer of each stage. Costs are in any unit, such as measured seconds of a pass.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// // A wide first layer, and a head as costly as two of the others.
/// let first = rushlight::dist::pipeline::balance(&[3.0, 1.0, 1.0, 1.0, 1.0, 2.0], 3)?;
/// assert_eq!(first, [0, 1, 4]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn balance(costs: &[f64], stages: usize) -> Result<Vec<usize>> {
    let layers = costs.len();
    if stages == 0 || layers < stages {
        return Err(Error::value(format!("pipeline: {layers} layers do not split into {stages} stages")));
    }
    if let Some(cost) = costs.iter().find(|cost| !(cost.is_finite() && **cost >= 0.0)) {
        return Err(Error::value(format!("pipeline: the cost {cost} of a layer is not a time")));
    }
    let mut sums = vec![0.0; layers + 1];
    for (i, cost) in costs.iter().enumerate() {
        sums[i + 1] = sums[i] + cost;
    }
    // `best[s][n]`: the least cost of the costliest of `s + 1` stages that hold the first `n` layers, and where the
    // last of them begins.
    let mut best = vec![vec![(f64::INFINITY, 0); layers + 1]; stages];
    for n in 1..=layers {
        best[0][n] = (sums[n], 0);
    }
    for s in 1..stages {
        for n in s + 1..=layers {
            for begin in s..n {
                let cost = best[s - 1][begin].0.max(sums[n] - sums[begin]);
                if cost < best[s][n].0 {
                    best[s][n] = (cost, begin);
                }
            }
        }
    }
    let mut first = vec![0; stages];
    let mut end = layers;
    for s in (0..stages).rev() {
        first[s] = best[s][end].1;
        end = first[s];
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::balance;

    #[test]
    fn the_costliest_stage_costs_least() {
        assert_eq!(balance(&[1.0; 8], 4).unwrap(), [0, 2, 4, 6]);
        assert_eq!(balance(&[5.0, 1.0, 1.0, 1.0], 2).unwrap(), [0, 1]);
        assert_eq!(balance(&[1.0, 1.0, 1.0, 9.0], 2).unwrap(), [0, 3]);
        assert_eq!(balance(&[2.0], 1).unwrap(), [0]);
        // Against all splits of some uneven layers.
        let costs: Vec<f64> = (0..9).map(|i| f64::from(i * 7 % 5) + 0.5).collect();
        let cost = |first: &[usize]| {
            let ends = first.iter().copied().skip(1).chain([costs.len()]);
            first.iter().zip(ends).map(|(&a, b)| costs[a..b].iter().sum::<f64>()).fold(0.0, f64::max)
        };
        let mut least = f64::INFINITY;
        for a in 1..8 {
            for b in a + 1..9 {
                least = least.min(cost(&[0, a, b]));
            }
        }
        assert_eq!(cost(&balance(&costs, 3).unwrap()), least);
    }

    #[test]
    fn impossible_splits_are_refused() {
        assert!(balance(&[1.0], 2).is_err());
        assert!(balance(&[1.0], 0).is_err());
        assert!(balance(&[1.0, f64::NAN], 1).is_err());
    }
}
