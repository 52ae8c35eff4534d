//! First and second derivatives of every op with goldens, against finite differences, in `float64`.
//!
//! The cases are the goldens': adding some covers a new op. Excluded cases are listed below with the reason.

use crate::support;
use crate::support::{Args, Case, load, ops};
use rushlight_core::DType;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{gradcheck_with, gradgradcheck_with, no_grad};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Larger cases take long and show no more than smaller ones. An op's smallest case is checked whatever its size.
const FIRST_ORDER_LIMIT: usize = 40;
const SECOND_ORDER_LIMIT: usize = 20;

/// Inputs at which a derivative is a convention, because differences straddle a kink, a jump or the end of a domain. By
/// op, with a predicate of the input.
type Special = fn(&[f64]) -> bool;
const KINKS: &[(&[&str], &str, Special)] = &[
    (&["*"], "infinite or NaN inputs have no differences", |x| x.iter().any(|v| !v.is_finite())),
    (
        &[
            "abs",
            "sign",
            "relu",
            "relu6",
            "elu",
            "selu",
            "celu",
            "leaky_relu",
            "prelu",
            "softsign",
            "softshrink",
            "hardshrink",
            "norm",
            "threshold",
            "sinc",
            "sqrt",
            "rsqrt",
            "log",
            "reciprocal",
            "logit",
            "copysign",
            "normalize",
            "pow",
            "xlogy",
            "prod",
            "cumprod",
            "cdist",
            "std",
            "fmod",
            "remainder",
        ],
        "kinks, poles and branches at zero",
        |x| x.contains(&0.0),
    ),
    (&["relu6"], "kink at six", |x| x.contains(&6.0)),
    (&["hardswish", "hardsigmoid"], "kinks at three", |x| x.iter().any(|v| v.abs() == 3.0)),
    (&["hardtanh", "asin", "acosh", "clamp", "logit"], "kinks or ends of the domain at one", |x| {
        x.iter().any(|v| v.abs() == 1.0)
    }),
    (&["softshrink", "hardshrink", "threshold", "round"], "kinks at one half", |x| {
        x.iter().any(|v| (v.abs() % 1.0) == 0.5)
    }),
    (&["softplus"], "a jump of rounding size at the threshold", |x| x.contains(&20.0)),
    (&["floor", "ceil", "trunc", "frac", "round"], "jumps at whole numbers", |x| x.iter().any(|v| v.fract() == 0.0)),
    (
        &[
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "max",
            "min",
            "amax",
            "amin",
            "aminmax",
            "cummax",
            "cummin",
            "scatter_reduce",
            "norm",
            "max_pool1d",
            "max_pool2d",
            "max_pool3d",
            "median",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "cdist",
        ],
        "ties",
        has_ties,
    ),
];

fn has_ties(x: &[f64]) -> bool {
    let mut sorted = x.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.windows(2).any(|w| w[0] == w[1])
}

/// Individually excluded cases.
const CASES: &[(&str, &str)] = &[
    ("clamp/5/", "bounds that cross: every element is at a bound"),
    ("clamp/17/", "bounds that meet each other and the elements"),
    ("logit/21/", "elements at eps itself"),
    ("embedding/3/", "padding_idx: the padding row has no gradient by convention"),
    ("embedding/4/", "padding_idx: the padding row has no gradient by convention"),
    ("embedding/9/", "scale_grad_by_freq: the gradient is not the derivative"),
    ("div/48/", "rounded quotients jump at whole numbers"),
    ("div/57/", "rounded quotients jump at whole numbers"),
    ("div/61/", "rounded quotients jump at whole numbers"),
    ("div/70/", "rounded quotients jump at whole numbers"),
    ("hypot/18/", "lengths near zero and beyond squares: differences are larger than the inputs or lost in rounding"),
    ("gaussian_nll_loss/7/", "a variance at zero: a difference would be negative, which is an error"),
    ("var/19/", "one element has no variance: NaN"),
    ("std/19/", "one element has no variance: NaN"),
    ("std/20/", "one element has no deviation: a kink at zero"),
    ("var_mean/19/", "one element has no variance: NaN"),
    ("std/23/", "equal elements: a kink at zero deviation"),
    ("norm/25/", "a kink at zero length"),
    ("logdet/5/", "a negative determinant has no logarithm: NaN"),
    ("logdet/13/", "a negative determinant has no logarithm: NaN"),
    ("masked_fill/2/", "filled with infinity, which has no differences"),
];

/// Ops whose derivative is zero almost everywhere, and whose goldens are at the jumps.
const STEPS: &[&str] = &["round"];

/// Ops that also return statistics, which are not differentiated: only the first output is.
const WITH_STATISTICS: &[&str] = &["batch_norm"];

/// Ops over symmetric matrices read one triangle but have a symmetric derivative: a difference has to move both
/// triangles.
const SYMMETRIC: &[&str] = &["cholesky", "eigh", "eigvalsh"];

fn left_out(case: &Case, values: &[Vec<f64>]) -> Option<&'static str> {
    if STEPS.contains(&case.op.as_str()) {
        return Some("steps");
    }
    let by_case = CASES.iter().find(|(id, _)| case.id.starts_with(id)).map(|(_, reason)| *reason);
    // Ties matter between inputs too.
    let joined: Vec<f64> = values.concat();
    by_case.or_else(|| {
        let hit = KINKS
            .iter()
            .find(|(ops, _, special)| (ops[0] == "*" || ops.contains(&case.op.as_str())) && special(&joined));
        hit.map(|(_, reason, _)| *reason)
    })
}

/// The case's call as a function of its differentiated inputs, in `float64`.
struct Subject {
    args: Args,
    inputs: Vec<Tensor>,
}

fn subject(case: &Case) -> Subject {
    let widen = |t: &Tensor| match t.dtype() {
        DType::F32 => {
            no_grad(|| t.to_dtype(DType::F64)).and_then(|wide| wide.requires_grad_(t.requires_grad())).unwrap()
        }
        _ => t.clone(),
    };
    let mut args = case.args.clone().map_tensors(widen);
    for item in args.kwargs.values_mut() {
        if let support::Item::Tensor(t) = item {
            *t = widen(t);
        }
    }
    let inputs = args.tensors().into_iter().filter(|t| t.requires_grad()).collect();
    Subject { args, inputs }
}

impl Subject {
    fn call(&self, op: ops::Op, symmetric: bool, inputs: &[Tensor]) -> rushlight_core::Result<Vec<Tensor>> {
        let mut given = inputs.iter();
        let mut failure = None;
        let args = self.args.clone().map_tensors(|t| match t.requires_grad() {
            false => t.clone(),
            true => {
                let next = given.next().expect("as many inputs as before");
                if !symmetric {
                    return next.clone();
                }
                let whole = next.mt().and_then(|turned| next.add(&turned)).and_then(|sum| sum.mul(0.5));
                whole.unwrap_or_else(|e| {
                    failure = Some(e);
                    next.clone()
                })
            }
        });
        match failure {
            Some(e) => Err(e),
            None => op(&args),
        }
    }

    /// The elements to differentiate by.
    fn values(&self) -> Vec<Vec<f64>> {
        self.inputs.iter().map(|t| t.to_vec().unwrap()).collect()
    }
}

/// The size of each op's smallest case that is not excluded.
fn smallest(cases: &[Case]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for case in cases.iter().filter(|case| case.grad.is_some()) {
        let values = subject(case).values();
        let size: usize = values.iter().map(|v| v.len()).sum();
        if size > 0 && left_out(case, &values).is_none() {
            let least = out.entry(case.op.clone()).or_insert(size);
            *least = size.min(*least);
        }
    }
    out
}

fn check_family(family: &str) {
    let (mut first, mut second) = (0, 0);
    let mut wrong = Vec::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let cases = load(family);
    let smallest = smallest(&cases);
    for case in cases.iter().filter(|case| case.grad.is_some()) {
        let op = ops::find(&case.op).unwrap_or_else(|| panic!("no dispatch for {}", case.op));
        let subject = subject(case);
        let values = subject.values();
        let size: usize = values.iter().map(|v| v.len()).sum();
        if let Some(reason) = left_out(case, &values) {
            *reasons.entry(reason).or_default() += 1;
            continue;
        }
        let least = smallest.get(&case.op).copied().unwrap_or(0);
        if size > FIRST_ORDER_LIMIT.max(least) {
            continue;
        }
        let symmetric = SYMMETRIC.contains(&case.op.as_str());
        let f = |inputs: &[Tensor]| {
            let mut outputs = subject.call(op, symmetric, inputs)?;
            if WITH_STATISTICS.contains(&case.op.as_str()) {
                outputs.truncate(1);
            }
            Ok(outputs)
        };
        let mut run = |what: &str, check: &dyn Fn() -> rushlight_core::Result<()>| {
            let result = catch_unwind(AssertUnwindSafe(check));
            match result {
                Ok(Ok(())) => {}
                Ok(Err(e)) => wrong.push(format!("{}: {what}: {e}", case.id)),
                Err(_) => wrong.push(format!("{}: {what}: panicked", case.id)),
            }
        };
        first += 1;
        run("first", &|| gradcheck_with(f, &subject.inputs, 1e-6, 1e-5, 1e-4));
        if size <= SECOND_ORDER_LIMIT.max(least) {
            second += 1;
            run("second", &|| gradgradcheck_with(f, &subject.inputs, 1e-6, 1e-4, 1e-4));
        }
    }
    println!("{family}: {first} first derivatives and {second} second ones checked; left out: {reasons:?}");
    assert!(wrong.is_empty(), "{family}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(first > 0);
}

macro_rules! families {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check_family(stringify!($name));
        }
    )*};
}

families! {
    activation attention binary conv index linalg loss matmul norm pad pointwise pool reduce resize scan scatter shape sort ternary
}

/// Every op with a derivative has a case that is differentiated, and twice.
#[test]
fn no_op_is_left_out_altogether() {
    let mut missed = Vec::new();
    for family in std::fs::read_dir(support::data::path("")).unwrap() {
        let name = family.unwrap().file_name().into_string().unwrap();
        let Some(family) = name.strip_suffix(".safetensors") else { continue };
        let cases = load(family);
        let checked = smallest(&cases);
        let differentiable = cases.iter().filter(|case| case.grad.is_some() && !STEPS.contains(&case.op.as_str()));
        missed.extend(differentiable.filter(|case| !checked.contains_key(&case.op)).map(|case| case.op.clone()));
    }
    missed.dedup();
    assert!(missed.is_empty(), "no case for {missed:?}");
}
