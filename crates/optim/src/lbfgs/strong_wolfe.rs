//! A line search for the strong Wolfe conditions: far enough down, and nearly level.

use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// Required decrease of the loss, as a fraction of the decrease predicted by the initial slope.
const DESCENT: f64 = 1e-4;
/// How level it must be, as a part of the first slope.
const CURVATURE: f64 = 0.9;
/// The bracket may not shrink below this.
const TOLERANCE: f64 = 1e-9;

/// A point along the direction.
#[derive(Clone)]
pub struct Point {
    pub step: f64,
    pub loss: f64,
    pub slope: f64,
    pub grad: Tensor,
}

/// Where the cubic through two points with their slopes is lowest, within bounds.
fn cubic_minimum(a: &Point, b: &Point, bounds: Option<(f64, f64)>) -> f64 {
    let (low, high) = bounds.unwrap_or((a.step.min(b.step), a.step.max(b.step)));
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.step - b.step);
    let square = d1 * d1 - a.slope * b.slope;
    // Also false for NaN.
    if square >= 0.0 {
        let d2 = square.sqrt();
        let (left, right) = if a.step <= b.step { (a, b) } else { (b, a) };
        let part = (right.slope + d2 - d1) / (right.slope - left.slope + 2.0 * d2);
        (right.step - (right.step - left.step) * part).max(low).min(high)
    } else {
        (low + high) / 2.0
    }
}

/// The point to move to from `origin`, trying `step` first, and the number of evaluations. `reach` is the
/// largest element of the direction.
pub fn strong_wolfe(
    objective: &mut dyn FnMut(f64) -> Result<Point>,
    origin: Point,
    step: f64,
    reach: f64,
    max_iterations: usize,
) -> Result<(Point, usize)> {
    let too_high = |p: &Point| p.loss > origin.loss + DESCENT * p.step * origin.slope;
    let level = |p: &Point| p.slope.abs() <= -CURVATURE * origin.slope;
    let mut evaluations = 1;
    let mut iteration = 0;
    let mut point = objective(step)?;
    let mut previous = origin.clone();
    // First a bracket in which the conditions must hold somewhere.
    let mut bracket = loop {
        if iteration >= max_iterations {
            break [origin.clone(), point];
        }
        if too_high(&point) || (iteration > 1 && point.loss >= previous.loss) {
            break [previous, point];
        }
        if level(&point) {
            return Ok((point, evaluations));
        }
        if point.slope >= 0.0 {
            break [previous, point];
        }
        let bounds = (point.step + 0.01 * (point.step - previous.step), point.step * 10.0);
        let next = cubic_minimum(&previous, &point, Some(bounds));
        previous = point;
        point = objective(next)?;
        evaluations += 1;
        iteration += 1;
    };
    // Then the bracket is narrowed.
    let lower = |bracket: &[Point; 2]| if bracket[0].loss <= bracket[1].loss { (0, 1) } else { (1, 0) };
    let (mut low, mut high) = lower(&bracket);
    let mut stuck = false;
    while iteration < max_iterations {
        let (left, right) = (bracket[0].step.min(bracket[1].step), bracket[0].step.max(bracket[1].step));
        if (right - left) * reach < TOLERANCE {
            break;
        }
        let mut step = cubic_minimum(&bracket[0], &bracket[1], None);
        // Near an end for a second time, or beyond it: a tenth of the bracket away from that end.
        let margin = 0.1 * (right - left);
        if (right - step).min(step - left) < margin {
            if stuck || step >= right || step <= left {
                step = if (step - right).abs() < (step - left).abs() { right - margin } else { left + margin };
                stuck = false;
            } else {
                stuck = true;
            }
        } else {
            stuck = false;
        }
        let point = objective(step)?;
        evaluations += 1;
        iteration += 1;
        if too_high(&point) || point.loss >= bracket[low].loss {
            bracket[high] = point;
            (low, high) = lower(&bracket);
        } else {
            let done = level(&point);
            if !done && point.slope * (bracket[high].step - bracket[low].step) >= 0.0 {
                bracket[high] = bracket[low].clone();
            }
            bracket[low] = point;
            if done {
                break;
            }
        }
    }
    let [first, second] = bracket;
    Ok((if low == 0 { first } else { second }, evaluations))
}
