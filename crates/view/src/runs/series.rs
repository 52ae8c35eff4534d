//! Points of a curve, thinned so that memory is bounded.

/// Maximum points; more are thinned to half.
const MAX_POINTS: usize = 20_000;

/// A value of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The step.
    pub step: i64,
    /// Seconds since 1970.
    pub time: f64,
    /// The value, possibly not finite.
    pub value: f64,
    /// Value of the run's change counter at arrival.
    pub seq: u64,
}

/// A curve. Points are in order of arrival, which is the order of steps unless the writer went back.
#[derive(Debug, Default)]
pub struct Series {
    points: Vec<Point>,
    /// The change that last removed points: a reader with an older state must read all points again.
    reset: u64,
    /// One of `stride` points is kept.
    stride: u32,
    /// Points since one was kept.
    skipped: u32,
    /// The newest point, kept or not.
    last: Option<Point>,
    least: f64,
    greatest: f64,
}

impl Series {
    /// Adds a point.
    pub fn push(&mut self, step: i64, time: f64, value: f64, seq: u64) {
        let point = Point { step, time, value, seq };
        if self.last.is_none() {
            (self.least, self.greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        }
        self.last = Some(point);
        // Comparisons with NaN are false.
        if value < self.least {
            self.least = value;
        }
        if value > self.greatest {
            self.greatest = value;
        }
        self.skipped += 1;
        if self.skipped <= self.stride {
            return;
        }
        self.skipped = 0;
        self.points.push(point);
        if self.points.len() > MAX_POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = self.stride * 2 + 1;
            self.reset = seq;
        }
    }

    /// Removes the points from a step on.
    pub fn purge(&mut self, step: i64, seq: u64) {
        let before = self.points.len();
        self.points.retain(|point| point.step < step);
        if self.points.len() < before || self.last.is_some_and(|last| last.step >= step) {
            self.reset = seq;
            self.last = self.points.last().copied();
            let values = self.points.iter().map(|p| p.value);
            self.least = values.clone().fold(f64::INFINITY, f64::min);
            self.greatest = values.fold(f64::NEG_INFINITY, f64::max);
        }
    }

    /// The newest point.
    pub fn last(&self) -> Option<Point> {
        self.last
    }

    /// Minimum and maximum value, ignoring NaN.
    pub fn range(&self) -> Option<(f64, f64)> {
        (self.least <= self.greatest).then_some((self.least, self.greatest))
    }

    /// Points that arrived after a change, and whether they are all points, because earlier ones were removed. At most
    /// `most` points: the minimum and maximum of each group of adjacent points. `None` if nothing changed.
    pub fn since(&self, seq: u64, most: usize) -> Option<(bool, Vec<Point>)> {
        let all = seq == 0 || self.reset > seq;
        let start = if all { 0 } else { self.points.partition_point(|point| point.seq <= seq) };
        let mut points = self.points[start..].to_vec();
        if points.len() > most {
            points = extremes(&points, most);
        }
        // The newest value is included even if thinning drops it.
        if let Some(last) = self.last.filter(|last| last.seq > seq || all)
            && points.last().is_none_or(|point| point.seq != last.seq || point.step != last.step)
        {
            points.push(last);
        }
        (all || !points.is_empty()).then_some((all, points))
    }
}

/// At most about `most` points with the minimum and maximum of each group.
fn extremes(points: &[Point], most: usize) -> Vec<Point> {
    let size = (2 * points.len()).div_ceil(most.max(2));
    let mut kept = Vec::with_capacity(most + 2);
    for group in points.chunks(size.max(1)) {
        let by_value = |a: &&Point, b: &&Point| a.value.total_cmp(&b.value);
        let (Some(low), Some(high)) = (group.iter().min_by(by_value), group.iter().max_by(by_value)) else { continue };
        let (first, second) = if (low.seq, low.step) <= (high.seq, high.step) { (low, high) } else { (high, low) };
        kept.push(*first);
        if first != second {
            kept.push(*second);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_newest_is_there() {
        let mut series = Series::default();
        for i in 0..1_000_000i64 {
            series.push(i, i as f64, (i % 1000) as f64, i as u64 + 1);
        }
        assert!(series.points.len() <= MAX_POINTS);
        assert_eq!(series.range(), Some((0.0, 999.0)));
        let (all, points) = series.since(0, 1000).unwrap();
        assert!(all && points.len() <= 1003, "{}", points.len());
        assert_eq!(points.last().unwrap().step, 999_999);
        assert!(series.since(1_000_000, 1000).is_none());
        let (all, points) = series.since(999_999, 1000).unwrap();
        assert_eq!((all, points.len()), (false, 1));
    }

    #[test]
    fn a_run_that_went_back_has_each_step_once() {
        let mut series = Series::default();
        (0..10).for_each(|i| series.push(i, 0.0, i as f64, 1));
        series.purge(5, 2);
        series.push(5, 0.0, f64::NAN, 3);
        let (all, points) = series.since(1, 100).unwrap();
        assert!(all);
        assert_eq!(points.iter().map(|p| p.step).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(series.range(), Some((0.0, 4.0)));
    }
}
