"""A line search for the strong Wolfe conditions: far enough down, and nearly level."""

from collections import namedtuple

#: How far the loss must fall, as a part of what the first slope promises.
_DESCENT = 1e-4
#: How level it must be, as a part of the first slope.
_CURVATURE = 0.9
#: The bracket may not shrink below this.
_TOLERANCE = 1e-9

#: A point along the direction.
Point = namedtuple("Point", "step loss grad slope")


def _cubic_minimum(a, b, bounds=None):
    """Where the cubic through two points with their slopes is lowest, within bounds."""
    low, high = bounds or (min(a.step, b.step), max(a.step, b.step))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:  # also for NaN
        return (low + high) / 2
    d2 = square**0.5
    left, right = (a, b) if a.step <= b.step else (b, a)
    part = (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2)
    return min(max(right.step - (right.step - left.step) * part, low), high)


def strong_wolfe(objective, origin, step, reach, max_iterations):
    """The point to go to from ``origin``, first trying ``step``, and how often ``objective(step)`` was evaluated. ``reach`` is the largest
    element of the direction."""

    def too_high(p):
        return p.loss > origin.loss + _DESCENT * p.step * origin.slope

    def level(p):
        return abs(p.slope) <= -_CURVATURE * origin.slope

    point, previous = objective(step), origin
    evaluations, iteration = 1, 0
    # First a bracket in which the conditions must hold somewhere.
    while True:
        if iteration >= max_iterations:
            bracket = [origin, point]
            break
        if too_high(point) or (iteration > 1 and point.loss >= previous.loss):
            bracket = [previous, point]
            break
        if level(point):
            return point, evaluations
        if point.slope >= 0:
            bracket = [previous, point]
            break
        bounds = (point.step + 0.01 * (point.step - previous.step), point.step * 10)
        following = _cubic_minimum(previous, point, bounds)
        previous, point = point, objective(following)
        evaluations += 1
        iteration += 1
    # Then the bracket is narrowed.
    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    stuck = False
    while iteration < max_iterations:
        left, right = sorted((bracket[0].step, bracket[1].step))
        if (right - left) * reach < _TOLERANCE:
            break
        step = _cubic_minimum(*bracket)
        # Near an end for a second time, or beyond it: a tenth of the bracket away from that end.
        margin = 0.1 * (right - left)
        if min(right - step, step - left) < margin:
            if stuck or step >= right or step <= left:
                step = right - margin if abs(step - right) < abs(step - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = objective(step)
        evaluations += 1
        iteration += 1
        if too_high(point) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        done = level(point)
        if not done and point.slope * (bracket[high].step - bracket[low].step) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
        if done:
            break
    return bracket[low], evaluations
