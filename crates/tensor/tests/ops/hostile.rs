//! Invalid arguments: every op returns a value or a meaningful error, and never panics.

use crate::support::{Args, Case, Item, load, ops};
use rushlight_core::{DType, ErrorKind, Result};
use rushlight_tensor::{Tensor, cat, einsum, stack, where_};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Call = Box<dyn Fn() -> Result<Vec<Tensor>>>;

/// A violation by a call.
fn misbehaviour(call: impl FnOnce() -> Result<Vec<Tensor>>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(_)) => None,
        Ok(Err(e)) if e.to_string().trim().len() > 8 => None,
        Ok(Err(e)) => Some(format!("says nothing: {:?}", e.to_string())),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// Tensors that replace any other.
fn hostile_tensors() -> Vec<(&'static str, Tensor)> {
    let counting = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        Tensor::arange_with(0, count, 1, DType::F32).and_then(|t| t.reshape(shape)).unwrap()
    };
    let as_type = |t: &Tensor, dtype| t.to_dtype(dtype).unwrap();
    let base = counting(&[3, 4]);
    let mut out = vec![
        ("zero-dim", counting(&[])),
        ("empty", counting(&[0])),
        ("empty rows", counting(&[0, 3])),
        ("empty columns", counting(&[3, 0])),
        ("one element", counting(&[1])),
        ("primes", counting(&[5, 7])),
        ("eight dims", counting(&[1, 2, 1, 1, 2, 1, 1, 2])),
        ("transposed", base.t().unwrap()),
        ("expanded", counting(&[1, 4]).expand([3, 4]).unwrap()),
        ("overlapping", counting(&[6]).unfold(0, 4, 1).unwrap()),
        ("not a number", base.mul(f64::NAN).unwrap()),
        ("infinite", base.add(f64::INFINITY).unwrap()),
        ("leaf", counting(&[2, 3]).requires_grad_(true).unwrap()),
        ("far indices", Tensor::new([[i64::MAX, i64::MIN], [1 << 40, -(1 << 40)]]).unwrap()),
    ];
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool] {
        out.push((dtype.name(), as_type(&base, dtype)));
    }
    out
}

/// Sizes among these are either small or larger than any machine's memory.
fn hostile_values(like: &Value) -> Vec<Value> {
    let ints = [0, 1, -1, 2, 7, -9, 1 << 44, -(1 << 44), i64::MAX, i64::MIN];
    match like {
        Value::Number(n) if n.is_i64() => ints.iter().map(|&i| json!(i)).collect(),
        Value::Number(_) => [0.0, -1.0, 0.5, 1e300, -1e300, 1e-300].iter().map(|&f| json!(f)).collect(),
        Value::Bool(b) => vec![json!(!b)],
        Value::String(_) => vec![json!("nonsense"), json!("")],
        Value::Array(list) => {
            let mut out = vec![json!([]), json!([0]), json!([-1, -1]), json!([0, 0]), json!([1, 1, 1, 1, 1, 1, 1, 1])];
            out.extend([1i64 << 44, i64::MAX, i64::MIN, -3].iter().map(|&i| json!(vec![i; list.len().max(1)])));
            out.push(json!([1i64 << 32, 1i64 << 32, 1i64 << 32]));
            out
        }
        _ => Vec::new(),
    }
}

/// The same call with one argument replaced, in every known way.
fn mutations(args: &Args, tensors: &[(&'static str, Tensor)]) -> Vec<(String, Args)> {
    let mut out = Vec::new();
    let replacements = |item: &Item| -> Vec<(String, Item)> {
        match item {
            Item::Tensor(_) => tensors.iter().map(|(name, t)| (name.to_string(), Item::Tensor(t.clone()))).collect(),
            Item::List(parts) => {
                let mut lists = vec![("no tensors".to_string(), Item::List(Vec::new()))];
                for (name, t) in tensors {
                    let mut changed = parts.clone();
                    if let Some(last) = changed.last_mut() {
                        *last = Some(t.clone());
                    }
                    lists.push((format!("last is {name}"), Item::List(changed)));
                    lists.push((format!("only {name}"), Item::List(vec![Some(t.clone())])));
                }
                lists
            }
            Item::Value(v) => {
                let mut values: Vec<(String, Item)> =
                    hostile_values(v).into_iter().map(|v| (v.to_string(), Item::Value(v))).collect();
                if v.is_f64() {
                    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
                    values.extend(odd.iter().map(|&f| (f.to_string(), Item::Float(f))));
                }
                values
            }
            Item::Float(_) => vec![("NaN".to_string(), Item::Float(f64::NAN))],
        }
    };
    for i in 0..args.inputs.len() {
        for (name, item) in replacements(&args.inputs[i]) {
            let mut changed = args.clone();
            changed.inputs[i] = item;
            out.push((format!("argument {i} is {name}"), changed));
        }
    }
    for key in args.kwargs.keys() {
        for (name, item) in replacements(&args.kwargs[key]) {
            let mut changed = args.clone();
            changed.kwargs.insert(key.clone(), item);
            out.push((format!("{key} is {name}"), changed));
        }
    }
    // All tensors at once.
    for (name, t) in tensors {
        out.push((format!("every tensor is {name}"), args.clone().map_tensors(|_| t.clone())));
    }
    out
}

/// One case per op and set of keywords.
fn samples(family: &str) -> Vec<Case> {
    let mut seen = std::collections::BTreeSet::new();
    let signature = |case: &Case| {
        let kinds: Vec<u8> = case
            .args
            .inputs
            .iter()
            .map(|i| match i {
                Item::Tensor(_) => 0,
                Item::List(_) => 1,
                Item::Value(Value::Array(_)) => 2,
                Item::Value(_) | Item::Float(_) => 3,
            })
            .collect();
        (case.op.clone(), kinds, case.args.kwargs.keys().cloned().collect::<Vec<_>>())
    };
    load(family).into_iter().filter(|case| seen.insert(signature(case))).collect()
}

fn abuse(family: &str) {
    let tensors = hostile_tensors();
    let mut calls = 0;
    let mut bad = Vec::new();
    for case in samples(family) {
        let Some(op) = ops::find(&case.op) else { panic!("no dispatch for {}", case.op) };
        for (what, args) in mutations(&case.args, &tensors) {
            calls += 1;
            let outcome = misbehaviour(|| {
                let outputs = op(&args)?;
                // Differentiates if possible.
                for out in outputs.iter().filter(|o| o.requires_grad() && o.numel() > 0) {
                    out.sum(..)?.backward_with(rushlight_tensor::autograd::Backward::default().retain_graph(true))?;
                }
                Ok(outputs)
            });
            bad.extend(outcome.map(|reason| format!("{} where {what}: {reason}", case.id)));
        }
    }
    println!("{family}: {calls} calls");
    assert!(bad.is_empty(), "{family}: {} of {calls}\n{}", bad.len(), bad.join("\n"));
}

macro_rules! families {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            abuse(stringify!($name));
        }
    )*};
}

families! {
    activation attention binary compare conv creation index linalg loss matmul norm pad pointwise pool reduce resize scan scatter
    shape sort ternary
}

#[test]
fn creation_and_views() {
    let huge = 1usize << 44;
    let x = Tensor::ones([3, 4]).unwrap();
    let calls: Vec<(&str, Call)> = vec![
        ("zeros of everything", Box::new(move || Ok(vec![Tensor::zeros([huge])?]))),
        ("zeros beyond addresses", Box::new(|| Ok(vec![Tensor::zeros([usize::MAX, usize::MAX])?]))),
        ("zeros with a zero", Box::new(|| Ok(vec![Tensor::zeros([usize::MAX, 0])?]))),
        ("many dims", Box::new(|| Ok(vec![Tensor::zeros(vec![1; 100])?]))),
        ("from too little", Box::new(|| Ok(vec![Tensor::from_slice(&[1.0f32], [usize::MAX, 2])?]))),
        ("ragged", Box::new(|| Ok(vec![Tensor::new(vec![vec![1.0f32], vec![]])?]))),
        ("arange by nothing", Box::new(|| Ok(vec![Tensor::arange(0, 5, 0)?]))),
        ("arange the wrong way", Box::new(|| Ok(vec![Tensor::arange(0, 5, -1)?]))),
        ("arange to NaN", Box::new(|| Ok(vec![Tensor::arange(0.0, f64::NAN, 1.0)?]))),
        ("arange of all integers", Box::new(|| Ok(vec![Tensor::arange(i64::MIN, i64::MAX, 1)?]))),
        ("linspace of everything", Box::new(move || Ok(vec![Tensor::linspace(0.0, 1.0, huge)?]))),
        ("linspace of NaN", Box::new(|| Ok(vec![Tensor::linspace_with(f64::NAN, 1.0, 5, DType::I64)?]))),
        ("eye of everything", Box::new(move || Ok(vec![Tensor::eye(huge, huge)?]))),
        ("randint of nothing", Box::new(|| Ok(vec![Tensor::randint(5, 5, [2])?]))),
        ("randint of everything", Box::new(|| Ok(vec![Tensor::randint(i64::MIN, i64::MAX, [2])?]))),
        ("randint of bool", Box::new(|| Ok(vec![Tensor::randint_with(0, 9, [2], DType::Bool)?]))),
        ("randperm of everything", Box::new(move || Ok(vec![Tensor::randperm(huge)?]))),
        ("rand of integers", Box::new(|| Ok(vec![Tensor::rand_with([2], DType::I64)?]))),
        ("narrow past the end", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.narrow(0, 1, usize::MAX)?]))
        }),
        ("narrow before the start", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.narrow(0, isize::MIN, 1)?]))
        }),
        ("slice anywhere", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.slice(0, Some(isize::MIN), Some(isize::MAX), usize::MAX)?]))
        }),
        ("slice by nothing", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.slice(0, None, None, 0)?]))
        }),
        ("select far away", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.select(0, isize::MIN)?]))
        }),
        ("as_strided out of bounds", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.as_strided(&[5, 5], &[100, 1], 0)?]))
        }),
        ("as_strided by everything", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.as_strided(&[2, 2], &[usize::MAX, 1], 1)?]))
        }),
        ("as_strided with few strides", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.as_strided(&[2, 2], &[1], 0)?]))
        }),
        ("reshape twice unknown", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.reshape([-1isize, -1])?]))
        }),
        ("reshape below zero", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.reshape([-5isize])?]))
        }),
        ("reshape to everything", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.reshape([usize::MAX, usize::MAX])?]))
        }),
        ("view of a transpose", {
            let x = x.t().unwrap();
            Box::new(move || Ok(vec![x.view([12])?]))
        }),
        ("expand to everything", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.expand([usize::MAX, 3, 4])?]))
        }),
        ("expand to fewer dims", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.expand([4])?]))
        }),
        ("permute with repeats", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.permute([0, 0])?]))
        }),
        ("unfold by nothing", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.unfold(0, 1, 0)?]))
        }),
        ("unfold too wide", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.unfold(0, usize::MAX, 1)?]))
        }),
        ("split into nothing", {
            let x = x.clone();
            Box::new(move || x.split(0, 0))
        }),
        ("split by wrong sizes", {
            let x = x.clone();
            Box::new(move || x.split_with_sizes(&[usize::MAX, 4], 0))
        }),
        ("chunks of nothing", {
            let x = x.clone();
            Box::new(move || x.chunk(0, 0))
        }),
        ("flatten backwards", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.flatten(1, 0)?]))
        }),
        ("unflatten to nonsense", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.unflatten(0, [-1isize, -1])?]))
        }),
        ("movedim of unequal lists", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.movedim([0], [0, 1])?]))
        }),
        ("diagonal of one dim", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.diagonal(0, 1, 1)?]))
        }),
        ("diagonal far away", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.diagonal(isize::MIN, 0, 1)?]))
        }),
        ("item of many", {
            let x = x.clone();
            Box::new(move || x.item::<f32>().map(|_| vec![]))
        }),
        ("cat of nothing", Box::new(|| Ok(vec![cat(&[], 0)?]))),
        ("stack of nothing", Box::new(|| Ok(vec![stack(&[], 0)?]))),
        ("dropout of NaN", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.dropout(f64::NAN, true)?]))
        }),
        ("normal_ below zero", {
            let x = x.clone();
            Box::new(move || x.normal_(0.0, -1.0).map(|_| vec![]))
        }),
        ("uniform_ upside down", {
            let x = x.clone();
            Box::new(move || x.uniform_(2.0, 1.0).map(|_| vec![]))
        }),
        ("uniform_ of NaN", {
            let x = x.clone();
            Box::new(move || x.uniform_(f64::NAN, f64::NAN).map(|_| vec![]))
        }),
        ("bernoulli of more than one", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.mul(2.0)?.bernoulli()?]))
        }),
        ("multinomial of everything", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.multinomial(huge, true)?]))
        }),
        ("multinomial of negatives", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.neg()?.multinomial(1, true)?]))
        }),
        ("copy_ that does not fit", {
            let x = x.clone();
            Box::new(move || x.copy_(&Tensor::ones([5])?).map(|_| vec![]))
        }),
        ("add_ that grows", {
            let x = x.clone();
            Box::new(move || x.add_(&Tensor::ones([2, 3, 4])?).map(|_| vec![]))
        }),
        ("add_ of a float to integers", Box::new(|| Tensor::ones_with([2], DType::I64)?.add_(1.5).map(|_| vec![]))),
        ("where_ without a condition", {
            let x = x.clone();
            Box::new(move || Ok(vec![where_(&x, &x, &x)?]))
        }),
        ("masked_fill_ that grows", {
            let x = x.clone();
            Box::new(move || x.masked_fill_(&Tensor::ones_with([2, 3, 4], DType::Bool)?, 1.0).map(|_| vec![]))
        }),
        ("einsum of nonsense", {
            let x = x.clone();
            Box::new(move || Ok(vec![einsum("ij,->->", &[&x])?]))
        }),
        ("einsum of few operands", {
            let x = x.clone();
            Box::new(move || Ok(vec![einsum("ij,jk->ik", &[&x])?]))
        }),
        ("einsum of other letters", {
            let x = x.clone();
            Box::new(move || Ok(vec![einsum("i1->é", &[&x])?]))
        }),
        ("matrix_power of a row", {
            let x = x.clone();
            Box::new(move || Ok(vec![x.matrix_power(2)?]))
        }),
        (
            "matrix_power of everything",
            Box::new(|| Ok(vec![Tensor::eye_with(2, 2, DType::F64)?.matrix_power(i64::MIN)?])),
        ),
        ("pinv of nothing", Box::new(|| Ok(vec![Tensor::zeros([0, 3])?.pinv(None)?]))),
        ("matrix_rank of nothing", Box::new(|| Ok(vec![Tensor::zeros([2, 0])?.matrix_rank(None)?]))),
        ("set_grad of another shape", {
            let x = x.clone();
            Box::new(move || x.set_grad(Some(Tensor::ones([1])?)).map(|_| vec![]))
        }),
    ];
    let mut bad = Vec::new();
    for (name, call) in &calls {
        bad.extend(misbehaviour(call).map(|reason| format!("{name}: {reason}")));
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn common_errors_say_what_to_do() {
    let (a, b) = (Tensor::ones([2, 3]).unwrap(), Tensor::ones([4, 5]).unwrap());
    let whole = Tensor::ones_with([2], DType::I64).unwrap();
    let far = Tensor::new([0i64, 9]).unwrap();
    let cases: Vec<(Result<Tensor>, ErrorKind, &[&str])> = vec![
        (a.add(&b), ErrorKind::Shape, &["add", "[2, 3]", "[4, 5]", "broadcast"]),
        (a.matmul(&b), ErrorKind::Shape, &["matmul", "2x3", "4x5"]),
        (a.sum(2), ErrorKind::Index, &["Dimension out of range", "[-2, 1]", "got 2"]),
        (a.sum([0, 0]), ErrorKind::Value, &["dim 0 appears multiple times"]),
        (a.reshape([4, 2]), ErrorKind::Shape, &["[4, 2]", "invalid for input of size 6"]),
        (a.t().unwrap().view([6]), ErrorKind::Shape, &["view", "not compatible", "reshape"]),
        (a.expand([2, 4]), ErrorKind::Shape, &["expand", "[2, 4]", "[2, 3]"]),
        (a.select(0, 5), ErrorKind::Index, &["select", "index 5", "out of bounds", "size 2"]),
        (a.index_select(0, &far), ErrorKind::Index, &["index_select: index 9", "size 2"]),
        (a.index_add(0, &far, &a, 1), ErrorKind::Index, &["index_add: index 9", "size 2"]),
        (a.gather(1, &far.reshape([2, 1]).unwrap()), ErrorKind::Index, &["gather: index 9", "size 3"]),
        (a.scatter(1, &far.reshape([2, 1]).unwrap(), 1.0), ErrorKind::Index, &["scatter: index 9", "size 3"]),
        (a.take(&far), ErrorKind::Index, &["take", "9"]),
        (a.cross_entropy(&far), ErrorKind::Index, &["cross_entropy: Target 9"]),
        (a.argmax([0, 1]), ErrorKind::Index, &["argmax", "[0, 1]", "`..`"]),
        (a.narrow(1, 2, 2), ErrorKind::Value, &["start (2)", "length (2)", "size (3)"]),
        (cat(&[&a, &b], 0), ErrorKind::Shape, &["cat", "must match except in dimension 0", "[4, 5]"]),
        (stack(&[&a, &b], 0), ErrorKind::Shape, &["stack expects each tensor to be equal size"]),
        (whole.div(0).and_then(|_| whole.floor_divide(0)), ErrorKind::Value, &["integer division by zero"]),
        (whole.pow(-1), ErrorKind::Value, &["integers to negative integer powers"]),
        (whole.to_dtype(DType::Bool).unwrap().neg(), ErrorKind::DType, &["bool", "logical_not"]),
        (whole.lerp(&whole, 0.5), ErrorKind::DType, &["lerp", "floating point", "int64"]),
        (a.bitwise_and(&a), ErrorKind::DType, &["bitwise_and", "float32"]),
        (whole.add_(0.5).cloned(), ErrorKind::DType, &["float32", "can't be cast", "int64"]),
        (a.inv(), ErrorKind::Shape, &["linalg.inv", "batches of square matrices", "2 by 3"]),
        (whole.reshape([1, 2]).unwrap().svdvals(), ErrorKind::DType, &["linalg.svdvals", "floating point", "int64"]),
        (Tensor::zeros([2, 2]).unwrap().inv(), ErrorKind::Numerical, &["linalg.inv: The diagonal element 1 is zero"]),
        (
            Tensor::zeros([3, 2, 2]).unwrap().inv(),
            ErrorKind::Numerical,
            &["linalg.inv: (Batch element 0): The diagonal"],
        ),
        (Tensor::zeros([1 << 44]), ErrorKind::OutOfMemory, &["out of memory", "tried to allocate 65536.00 GiB"]),
        (Tensor::zeros([usize::MAX, 3]), ErrorKind::Value, &["more elements than memory can address"]),
        (a.dropout(1.5, true), ErrorKind::Value, &["dropout probability", "between 0 and 1", "1.5"]),
        (a.masked_fill(&a, 1.0), ErrorKind::DType, &["bool"]),
    ];
    for (i, (result, kind, words)) in cases.into_iter().enumerate() {
        let e = result.err().unwrap_or_else(|| panic!("case {i} should fail"));
        assert_eq!(e.kind(), kind, "case {i}: {e:?}");
        for word in words {
            assert!(e.to_string().contains(word), "case {i}: {e} should say {word:?}");
        }
    }
}
