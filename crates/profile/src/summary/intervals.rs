//! Sets of times.

/// Times that do not overlap, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals(Vec<(f64, f64)>);

impl Intervals {
    /// The union of spans.
    pub(super) fn union(spans: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut spans: Vec<(f64, f64)> = spans.filter(|(a, b)| b > a).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut out: Vec<(f64, f64)> = Vec::new();
        for (a, b) in spans {
            match out.last_mut() {
                Some(last) if a <= last.1 => last.1 = last.1.max(b),
                _ => out.push((a, b)),
            }
        }
        Self(out)
    }

    /// How much of a span is covered.
    pub(super) fn within(&self, from: f64, to: f64) -> f64 {
        let first = self.0.partition_point(|(_, b)| *b <= from);
        self.0[first..].iter().take_while(|(a, _)| *a < to).map(|(a, b)| b.min(to) - a.max(from)).sum()
    }

    /// Parts of these that the others do not cover.
    pub(super) fn minus(&self, other: &Intervals) -> Self {
        let mut out = Vec::new();
        for &(a, b) in &self.0 {
            let mut at = a;
            let first = other.0.partition_point(|(_, end)| *end <= a);
            for &(x, y) in other.0[first..].iter().take_while(|(x, _)| *x < b) {
                if x > at {
                    out.push((at, x));
                }
                at = at.max(y);
            }
            if b > at {
                out.push((at, b));
            }
        }
        Self(out)
    }
}
