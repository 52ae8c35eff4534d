//! Integers that differ between runs, as expressions of sizes.

/// A quantity on each run, and the expression that computes it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub values: Vec<i64>,
    pub text: String,
}

impl Known {
    fn map(&self, f: impl Fn(i64) -> Option<i64>) -> Option<Vec<i64>> {
        self.values.iter().map(|&v| f(v)).collect()
    }
}

/// A product or sum of two quantities.
fn join(a: &Known, b: &Known, f: impl Fn(i64, i64) -> Option<i64>, sign: &str) -> Option<Known> {
    let values = a.values.iter().zip(&b.values).map(|(&a, &b)| f(a, b)).collect::<Option<Vec<i64>>>()?;
    Some(Known { values, text: format!("{} {sign} {}", a.text, b.text) })
}

/// The values as a quantity times, over, or plus a number.
fn linear(values: &[i64], of: &Known) -> Option<String> {
    let (first, q) = (*values.first()?, *of.values.first()?);
    let holds = |f: &dyn Fn(i64) -> Option<i64>| of.map(f).is_some_and(|made| made == values);
    let text = if of.text.contains(' ') { format!("({})", of.text) } else { of.text.clone() };
    if holds(&|v| Some(v)) {
        return Some(of.text.clone());
    }
    if q != 0 && first % q == 0 && holds(&|v| v.checked_mul(first / q)) {
        return Some(format!("{text} * {}", first / q));
    }
    // `v // d` for a divisor that all runs agree on.
    if first > 0 && q > first {
        let most = q / first;
        for divisor in (q / (first + 1)).max(2)..=most {
            if holds(&|v| Some(v.div_euclid(divisor))) {
                return Some(format!("{text} // {divisor}"));
            }
        }
    }
    let more = first.checked_sub(q)?;
    if holds(&|v| v.checked_add(more)) {
        return Some(if more > 0 { format!("{text} + {more}") } else { format!("{text} - {}", -more) });
    }
    // `v * a + b` by the first two runs.
    if let ([v0, v1, ..], [q0, q1, ..]) = (values, &of.values[..])
        && q1 != q0
        && (v1 - v0) % (q1 - q0) == 0
    {
        let a = (v1 - v0) / (q1 - q0);
        let b = v0.checked_sub(a.checked_mul(*q0)?)?;
        if a != 0 && holds(&|v| v.checked_mul(a)?.checked_add(b)) {
            let sign = if b < 0 { '-' } else { '+' };
            return Some(format!("{text} * {a} {sign} {}", b.abs()));
        }
    }
    None
}

/// An expression that gives the values on every run. Sizes earlier in the list are preferred, and one size to several.
pub(crate) fn solve(values: &[i64], known: &[Known]) -> Option<String> {
    if let Some(found) = known.iter().find(|k| k.values == values) {
        return Some(found.text.clone());
    }
    if let Some(found) = known.iter().find_map(|k| linear(values, k)) {
        return Some(found);
    }
    let known = &known[..known.len().min(12)];
    let mut pairs = Vec::new();
    for (i, a) in known.iter().enumerate() {
        for b in &known[i..] {
            pairs.extend(join(a, b, i64::checked_mul, "*"));
        }
    }
    if let Some(found) = pairs.iter().find_map(|k| linear(values, k)) {
        return Some(found);
    }
    for (i, a) in known.iter().enumerate() {
        for (j, b) in known.iter().enumerate() {
            let sum = if i < j { join(a, b, i64::checked_add, "+") } else { None };
            let difference = if i != j { join(a, b, i64::checked_sub, "-") } else { None };
            if let Some(found) = sum.iter().chain(&difference).find_map(|k| linear(values, k)) {
                return Some(found);
            }
        }
    }
    for pair in &pairs {
        for one in known {
            if let Some(found) = join(pair, one, i64::checked_mul, "*").and_then(|k| linear(values, &k)) {
                return Some(found);
            }
        }
    }
    None
}
