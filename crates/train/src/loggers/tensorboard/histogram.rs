//! Histograms with TensorBoard's buckets: each a tenth wider than the one before, mirrored around zero.

use super::proto::Histogram;

/// Edges of the buckets of positive values.
fn positive() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(1e-12), |v| Some(v * 1.1)).take_while(|v| *v < 1e20)
}

/// All edges, ascending.
pub fn default_edges() -> Vec<f64> {
    let upper: Vec<f64> = positive().collect();
    upper.iter().rev().map(|v| -v).chain([0.0]).chain(upper.iter().copied()).collect()
}

/// The histogram of values between given edges; the last bucket includes its upper edge. Empty buckets on either side
/// are dropped. Non-finite values are not counted. `None` if there are no others.
pub fn histogram(values: &[f64], edges: &[f64]) -> Option<Histogram> {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.is_empty() || edges.len() < 2 {
        return None;
    }
    let mut counts = vec![0.0f64; edges.len() - 1];
    for &value in &finite {
        let after = edges.partition_point(|edge| *edge <= value);
        match after {
            0 => {}
            // Beyond the last edge, or on it.
            n if n == edges.len() => {
                if value == edges[n - 1] {
                    counts[n - 2] += 1.0;
                }
            }
            n => counts[n - 1] += 1.0,
        }
    }
    let first = counts.iter().position(|c| *c > 0.0).unwrap_or(0);
    let last = counts.iter().rposition(|c| *c > 0.0).unwrap_or(0);
    // Only upper limits are stored: an empty bucket in front marks the lower limit of the first one.
    let mut limits = vec![edges[first]];
    limits.extend(&edges[first + 1..=last + 1]);
    let mut shown = vec![0.0];
    shown.extend(&counts[first..=last]);
    let fold = |start: f64, f: fn(f64, f64) -> f64| finite.iter().copied().fold(start, f);
    Some(Histogram {
        min: fold(f64::INFINITY, f64::min),
        max: fold(f64::NEG_INFINITY, f64::max),
        num: finite.len() as f64,
        sum: finite.iter().sum(),
        sum_squares: finite.iter().map(|v| v * v).sum(),
        limits,
        counts: shown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets() {
        let edges = [0.0, 1.0, 2.0, 3.0, 4.0];
        let h = histogram(&[1.0, 1.5, 2.0, 3.0, f64::NAN], &edges).unwrap();
        assert_eq!(h.limits, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(h.counts, [0.0, 2.0, 1.0, 1.0]);
        assert_eq!((h.min, h.max, h.num, h.sum, h.sum_squares), (1.0, 3.0, 4.0, 7.5, 16.25));
        assert!(histogram(&[f64::NAN], &edges).is_none());
        assert_eq!(default_edges().len(), 1549);
    }
}
