//! No public op is without a test: the op names in the sources are compared with the goldens and with the identifiers
//! of the tests. Ops that neither covers elsewhere are tested here: in-place variants and aliases.

use crate::support::{data, ops};
use rushlight_core::rng::Generator;
use rushlight_core::{DType, Element, ErrorKind, Result};
use rushlight_tensor::{PadMode, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Public functions under `src/ops` that are not ops, with the reason.
const NO_OPS: &[(&str, &str)] = &[
    ("alike", "a rule of operands, which rows name"),
    ("no_zero_divisor", "a rule of operands, which rows name"),
    ("not_bools", "a rule of operands, which rows name"),
    ("fitting", "checks a number for the Python front; its documentation tests it"),
    ("lstm_backward", "steps of the recurrent layers, whose tests run it"),
    ("lstm_forward", "steps of the recurrent layers, whose tests run it"),
    ("unpromoted", "the error of dtypes without a common one; its documentation tests it"),
    ("per_dim", "reads a `Sizes` for the layers of other crates"),
];

/// The Rust files of a directory and those below it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// The identifiers of some code, comments and strings left out.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(""));
    let outside_strings = lines.flat_map(|line| line.split('"').step_by(2));
    outside_strings.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_')).filter(|w| !w.is_empty())
}

/// A `macro { … }` of the file that begins with `head` at the start of a line: its lines between the braces.
fn block<'a>(text: &'a str, head: &str) -> Option<&'a str> {
    let start = if text.starts_with(head) { 0 } else { text.find(&format!("\n{head}"))? + 1 };
    let body = &text[start + head.len()..];
    Some(&body[..body.find("\n}")?])
}

/// The names of public functions in a source file, including those made by its macros.
fn public_functions(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or("");
    let mut names: BTreeSet<String> = BTreeSet::new();
    let is_name = |w: &str| w.len() > 1 && w.starts_with(|c: char| c.is_ascii_lowercase());
    for line in text.lines() {
        if let Some(rest) = line.trim_start().strip_prefix("pub fn ") {
            names.extend(words(rest).next().filter(|w| is_name(w) && rest.starts_with(w)).map(String::from));
        }
    }
    for definition in text.split("macro_rules! ").skip(1) {
        let name = words(definition).next().unwrap_or("");
        if !block(definition, &format!("{name} {{")).is_some_and(|body| body.contains("pub fn $")) {
            continue;
        }
        for line in block(text, &format!("{name}! {{")).unwrap_or("").lines() {
            // Parameters in parentheses are not names.
            let outside = line.split("//").next().unwrap_or("").split('(').enumerate().map(|(i, part)| match i {
                0 => part,
                _ => part.split_once(')').map_or("", |(_, rest)| rest),
            });
            let private = |w: &str| text.contains(&format!("\nfn {w}("));
            names.extend(outside.flat_map(words).filter(|w| is_name(w) && !private(w)).map(String::from));
        }
    }
    names
}

#[test]
fn names_are_found_in_functions_and_in_macros() {
    let text = "macro_rules! rows {\n    ($n:ident $i:ident) => { pub fn $n() {} };\n}\n\nrows! {\n    /// Doc words.\n    exp exp_ Exp any;\n    elu(alpha) Elu;\n}\n\nfn any(x: u8) {}\nimpl X {\n    pub fn neg<T>() {}\n    fn hidden() {}\n}\n";
    let names = public_functions(text);
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["elu", "exp", "exp_", "neg"]);
}

#[test]
fn every_public_op_is_tested() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if !root.join("crates").exists() {
        return println!("skipped: the sources are not here");
    }
    let mut recorded = BTreeSet::new();
    for entry in std::fs::read_dir(data::path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            let bytes = std::fs::read(&path).unwrap();
            let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
            let cases: Vec<Value> = serde_json::from_str(&header.metadata().as_ref().unwrap()["cases"]).unwrap();
            recorded.extend(cases.iter().map(|case| case["op"].as_str().unwrap().to_string()));
        }
    }
    // The table of ops counts as a test only if there are goldens for it.
    let idle: Vec<&str> = ops::all().map(|(name, _)| name).filter(|&name| !recorded.contains(name)).collect();
    assert!(idle.is_empty(), "no goldens for {idle:?} (tests/goldens/cases)");

    let tests = std::fs::read_dir(root.join("crates")).unwrap().map(|c| c.unwrap().path().join("tests"));
    let tests: Vec<String> = tests
        .filter(|directory| directory.exists())
        .flat_map(|directory| files(&directory))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let said: BTreeSet<&str> = tests.iter().flat_map(|text| words(text)).collect();
    let mut missing = BTreeMap::new();
    let mut count = 0;
    for file in files(&root.join("crates/tensor/src/ops")) {
        for name in public_functions(&std::fs::read_to_string(&file).unwrap()) {
            count += 1;
            let known = recorded.contains(&name) || said.contains(name.as_str());
            if !known && NO_OPS.iter().all(|(no_op, _)| *no_op != name) {
                missing.insert(name, file.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    assert!(missing.is_empty(), "{} of {count} public ops have no test: {missing:#?}", missing.len());
    assert!(count > 500, "only {count} names were found");
}

/// Values, NaN equal to NaN.
fn same(got: &Tensor, want: &Tensor) -> Result<bool> {
    let (a, b) = (got.to_vec::<f64>()?, want.to_vec::<f64>()?);
    let equal = a.iter().zip(&b).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
    Ok(got.dtype() == want.dtype() && got.shape() == want.shape() && equal)
}

/// Calls `name` and `name_` with the same arguments and compares.
macro_rules! twins {
    ($x:expr, $arguments:tt: $($name:ident $inplace:ident)*) => {$(
        let (x, want) = ($x.copy()?, $x.$name $arguments?);
        x.$inplace $arguments?;
        assert!(same(&x, &want)?, "{}: {x}, not {want}", stringify!($inplace));
    )*};
}

#[test]
fn in_place_twins_agree() -> Result<()> {
    let x = Tensor::new([[0.15, 0.5, 0.9], [1.5, -0.7, 2.5]])?.transpose(0, 1)?;
    twins!(x, (): exp exp_ exp2 exp2_ expm1 expm1_ log log_ log2 log2_ log10 log10_ log1p log1p_ sqrt sqrt_ rsqrt rsqrt_ square square_
        reciprocal reciprocal_ sin sin_ cos cos_ tan tan_ asin asin_ acos acos_ atan atan_ sinh sinh_ cosh cosh_ tanh tanh_ asinh asinh_
        acosh acosh_ atanh atanh_ sinc sinc_ erf erf_ erfc erfc_ erfinv erfinv_ lgamma lgamma_ digamma digamma_ sigmoid sigmoid_
        logsigmoid logsigmoid_ relu relu_ gelu gelu_ gelu_tanh gelu_tanh_ silu silu_ mish mish_ softsign softsign_ selu selu_
        hardswish hardswish_ hardsigmoid hardsigmoid_ tanhshrink tanhshrink_ frac frac_ floor floor_ ceil ceil_ round round_ trunc trunc_
        neg neg_ abs abs_);
    let y = Tensor::new([[0.3, -2.0], [1.5, 0.25], [-0.5, 4.0]])?;
    twins!(x, (&y): add add_ sub sub_ mul mul_ div div_ floor_divide floor_divide_ trunc_divide trunc_divide_ remainder remainder_
        fmod fmod_ maximum maximum_ minimum minimum_ fmax fmax_ fmin fmin_ atan2 atan2_ hypot hypot_ copysign copysign_
        logaddexp logaddexp_ logaddexp2 logaddexp2_ xlogy xlogy_ heaviside heaviside_ pow pow_);
    twins!(x, (&y, 0.25): add_scaled add_scaled_ lerp lerp_);
    twins!(x, (&y, &x, 0.25): addcmul addcmul_ addcdiv addcdiv_);
    twins!(x, (-0.25, 1.25): clamp clamp_);
    let (a, b) = (Tensor::new([12i64, -7, 5])?, Tensor::new([3i64, 1, 2])?);
    twins!(a, (&b): bitwise_and bitwise_and_ bitwise_or bitwise_or_ bitwise_xor bitwise_xor_ bitwise_left_shift bitwise_left_shift_
        bitwise_right_shift bitwise_right_shift_);
    twins!(a, (&b, 3): add_scaled add_scaled_);
    twins!(a, (0, 6): clamp clamp_);
    Ok(())
}

#[test]
fn other_names_and_likenesses() -> Result<()> {
    let x = Tensor::new([[1.0f32, 0.0, -2.0], [0.0, 3.0, 4.0]])?;
    assert!(same(&x.argwhere()?, &x.nonzero()?)?);
    assert!(same(&x.swapdims(0, 1)?, &x.transpose(0, 1)?)?);
    assert_eq!(x.fliplr()?.to_vec::<f32>()?, [-2.0, 0.0, 1.0, 4.0, 3.0, 0.0]);
    assert_eq!(x.flipud()?.to_vec::<f32>()?, [0.0, 3.0, 4.0, 1.0, 0.0, -2.0]);
    assert_eq!(x.select(0, 0)?.fliplr().unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Tensor::new(1.0f32)?.flipud().unwrap_err().kind(), ErrorKind::Shape);
    let row = Tensor::new([1.0f32, 2.0, 3.0])?;
    for wide in [row.broadcast_to([2, 3])?, row.expand_as(&x)?] {
        assert_eq!(wide.to_vec::<f32>()?, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        assert_eq!(wide.sum_to_size(&[3])?.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
        assert_eq!(wide.sum_to_size(&[2, 1])?.to_vec::<f32>()?, [6.0, 6.0]);
    }
    assert_eq!(x.sum_to_size(&[4]).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(row.rsub(1)?.to_vec::<f32>()?, [0.0, -1.0, -2.0]);
    assert_eq!(row.rdiv(6.0)?.to_vec::<f32>()?, [6.0, 3.0, 2.0]);
    let positive = x.gt(0.0)?;
    assert_eq!(x.where_self(&positive, -1.0)?.to_vec::<f32>()?, [1.0, -1.0, -1.0, -1.0, 3.0, 4.0]);
    let full = x.to_dtype(DType::I64)?.full_like(7)?;
    assert_eq!((full.dtype(), full.to_vec::<i64>()?), (DType::I64, vec![7; 6]));
    let (a, b) = (Tensor::new([[0.0, 3.0], [1.0, 1.0]])?, Tensor::new([[4.0, 0.0], [1.0, 1.0]])?);
    assert_eq!(a.pairwise_distance(&b, 2.0, 0.0, true)?.to_vec::<f64>()?, [5.0, 0.0]);
    assert_eq!(a.pairwise_distance(&b, 1.0, 0.0, false)?.shape(), [2]);
    Ok(())
}

#[test]
fn random_tensors_by_a_generator_of_their_own() -> Result<()> {
    let draw = |seed| -> Result<[Vec<f64>; 2]> {
        let generator = Generator::new(seed);
        let uniform = Tensor::rand_from(&generator, [50], DType::F64)?;
        Ok([uniform.to_vec()?, Tensor::randn_from(&generator, [50], DType::F64)?.to_vec()?])
    };
    assert_eq!(draw(3)?, draw(3)?);
    assert_ne!(draw(3)?, draw(4)?);
    assert!(draw(3)?[0].iter().all(|v| (0.0..1.0).contains(v)) && draw(3)?[1].iter().any(|v| *v < 0.0));
    let like = Tensor::zeros_with([4, 25], DType::F64)?;
    let uniform = like.rand_like()?;
    assert_eq!((uniform.dtype(), uniform.shape()), (DType::F64, &[4, 25][..]));
    assert!(uniform.to_vec::<f64>()?.iter().all(|v| (0.0..1.0).contains(v)));
    let (mean, std) = (Tensor::new([1.0, 2.0])?, Tensor::new([[0.0], [0.0]])?);
    assert_eq!(Tensor::normal(&mean, &std)?.to_vec::<f64>()?, [1.0, 2.0, 1.0, 2.0]);
    assert_eq!(Tensor::normal(&mean, &std.sub(1.0)?).unwrap_err().kind(), ErrorKind::Value);
    like.bernoulli_(0.5)?;
    let ones = like.to_vec::<f64>()?.iter().filter(|v| **v == 1.0).count();
    assert!((20..80).contains(&ones) && like.to_vec::<f64>()?.iter().all(|v| *v == 0.0 || *v == 1.0), "{ones}");
    assert_eq!(like.bernoulli_(1.5).unwrap_err().kind(), ErrorKind::Value);
    Ok(())
}

#[test]
fn bounds_floors_and_sections() -> Result<()> {
    let x = Tensor::new([-3.0f32, 0.5, 7.0])?;
    let high = Tensor::new([1.0f32, 0.0, 9.0])?;
    assert_eq!(x.clamp_bounds(Some((-1.0).into()), Some((&high).into()))?.to_vec::<f32>()?, [-1.0, 0.0, 7.0]);
    x.clamp_bounds_(None, Some(2.0.into()))?;
    assert_eq!(x.to_vec::<f32>()?, [-3.0, 0.5, 2.0]);
    x.div_floor_(2.0)?;
    assert_eq!(x.to_vec::<f32>()?, [-2.0, 0.0, 1.0]);
    let parts = Tensor::arange(0, 7, 1)?.tensor_split(3, 0)?;
    assert_eq!(parts.iter().map(Tensor::numel).collect::<Vec<_>>(), [3, 2, 2]);
    assert!(x.tensor_split(0, 0).is_err());
    Ok(())
}

#[test]
fn results_keep_their_memory_order() -> Result<()> {
    let t = Tensor::arange(0, 6, 1)?.reshape([2, 3])?.t()?;
    assert_eq!(t.full_like_with(2.5, DType::F64)?.strides(), [1, 3]);
    let ordered = Tensor::ones([3, 2])?.in_order_of(&t)?;
    assert_eq!((ordered.strides(), ordered.sum(..)?.item::<f32>()?), (&[1, 3][..], 6.0));
    assert_eq!(ordered.in_order_of(&Tensor::ones([2, 3])?).unwrap_err().kind(), ErrorKind::Shape);

    // Sorting and reversing keep the order; filling and scattering give row-major results, as in PyTorch.
    let columns = Tensor::new([[3.0f32, 1.0, 2.0], [6.0, 5.0, 4.0]])?.t()?;
    let (values, indices) = columns.sort(0, false)?;
    assert_eq!((values.strides(), indices.strides()), (&[1, 3][..], &[1, 3][..]));
    assert_eq!(values.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let flipped = columns.flip([0])?;
    assert_eq!((flipped.strides(), flipped.to_vec::<f32>()?), (&[1, 3][..], vec![2.0, 4.0, 1.0, 5.0, 3.0, 6.0]));
    let mask = columns.gt(3.0)?;
    assert_eq!(columns.masked_fill(&mask, 0.0)?.strides(), [2, 1]);
    let index = Tensor::new([[0i64]])?;
    assert_eq!(columns.scatter(0, &index, 9.0)?.strides(), [2, 1]);

    // Images keep their channels innermost.
    let images = Tensor::arange(0, 48, 1)?.to_dtype(DType::F32)?.view([2, 3, 4, 2])?.permute([0, 3, 1, 2])?;
    let padded = images.pad(&[1, 0, 0, 1], PadMode::Constant(7.into()))?;
    assert_eq!((padded.shape(), padded.strides()), (&[2, 2, 4, 5][..], &[40, 1, 10, 2][..]));
    assert_eq!(padded.select(0, 0)?.select(0, 1)?.select(0, 0)?.to_vec::<f32>()?, [7.0, 1.0, 3.0, 5.0, 7.0]);
    let cut = images.pad(&[-3, 0, -2, 0], PadMode::Constant(7.into()))?;
    assert_eq!((cut.shape(), cut.to_vec::<f32>()?), (&[2, 2, 1, 1][..], vec![22.0, 23.0, 46.0, 47.0]));
    assert_eq!(Tensor::ones([2, 2, 5, 5])?.in_format_of(&images)?.strides(), [50, 1, 10, 2]);
    assert_eq!(Tensor::ones([2, 2, 5, 5])?.in_format_of(&padded.contiguous()?)?.strides(), [50, 25, 5, 1]);

    let slices = Tensor::new([[1i64, 1, 2, 1], [3, 3, 4, 3]])?.unique_consecutive_dim_full(1)?;
    assert_eq!(slices.inverse.to_vec::<i64>()?, [0, 0, 1, 2]);
    assert_eq!((slices.values.shape(), slices.values.strides()), (&[2, 3][..], &[1, 2][..]));
    assert_eq!(t.nonzero()?.strides(), [1, 5]);
    Ok(())
}

#[test]
fn nextafter_takes_the_smallest_step() -> Result<()> {
    let x = Tensor::new([1.0f32, -1.0, 0.0, -0.0, 3.0, f32::MAX, f32::INFINITY])?;
    let y = Tensor::new([2.0f32, 0.0, 1.0, -1.0, 3.0, f32::INFINITY, 0.0])?;
    let tiny = f32::from_bits(1);
    let expected = [1.0f32.next_up(), (-1.0f32).next_up(), tiny, -tiny, 3.0, f32::INFINITY, f32::MAX];
    assert_eq!(x.nextafter(&y)?.to_vec::<f32>()?, expected);
    assert!(x.nextafter(&Tensor::new(f32::NAN)?)?.isnan()?.all(..)?.item::<bool>()?);
    let x = x.requires_grad_(true)?;
    x.nextafter(&y)?.sum(..)?.backward()?;
    // One where it moves.
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    assert_eq!(Tensor::new([1i64])?.nextafter(&Tensor::new([2i64])?).unwrap_err().kind(), ErrorKind::DType);
    Ok(())
}

#[test]
fn packed_factors_give_back_their_matrix() -> Result<()> {
    let within = |a: &Tensor, b: &Tensor| -> Result<bool> { Ok(a.sub(b)?.abs()?.max(..)?.item::<f64>()? < 1e-10) };
    // Indefinite, with a zero on the diagonal: `ldl_factor` has to pivot.
    let a = Tensor::new_with([[0.0, 2.0, 1.0], [2.0, -1.0, 4.0], [1.0, 4.0, 3.0]], DType::F64)?;
    let b = Tensor::new_with([[1.0, 0.0], [2.0, -1.0], [0.5, 3.0]], DType::F64)?;
    let (ld, pivots, info) = a.ldl_factor()?;
    assert_eq!(info.item::<i64>()?, 0);
    assert!(within(&a.matmul(&ld.ldl_solve(&pivots, &b)?)?, &b)?);
    assert!(Tensor::ones([2, 3])?.ldl_factor().is_err());
    // `AᵀA = RᵀR` for the `R` that `geqrf` leaves in the upper triangle.
    let tall = Tensor::new_with([[1.0, 2.0], [-3.0, 0.5], [2.0, 4.0]], DType::F64)?;
    let (packed, tau) = tall.geqrf()?;
    let r = packed.narrow(0, 0, 2)?.triu(0)?;
    assert_eq!(tau.shape(), [2]);
    assert!(within(&r.t()?.matmul(&r)?, &tall.t()?.matmul(&tall)?)?);
    Ok(())
}

#[test]
fn hashes_are_exclusive_ors_of_bits() -> Result<()> {
    let x = Tensor::new([[1i64, 2, 4], [7, 7, 3]])?;
    let hashes = x.hash_tensor(1, false)?;
    assert_eq!(hashes.to_dtype(DType::I64)?.to_vec::<i64>()?, [7, 3]);
    assert_eq!(x.hash_tensor(1, true)?.shape(), [2, 1]);
    let one = Tensor::new([1.0f32])?.hash_tensor(.., false)?.to_dtype(DType::I64)?;
    assert_eq!(one.item::<i64>()?, 1.0f64.to_bits() as i64);
    Ok(())
}

/// Every number of a half type is the one after the one before, upwards and downwards.
fn nextafter_steps_in<H: Element>(dtype: DType, infinity: u16, of: fn(u16) -> H, bits: fn(H) -> u16) -> Result<()> {
    const SIGN: u16 = 0x8000;
    let tensor = |bits: &[u16]| Tensor::from_slice(&bits.iter().map(|&b| of(b)).collect::<Vec<H>>(), [bits.len()]);
    let moved = |from: &[u16], to: u16| -> Result<Vec<u16>> {
        Ok(tensor(from)?.nextafter(&tensor(&[to])?)?.to_vec::<H>()?.into_iter().map(bits).collect())
    };
    let (below, above): (Vec<u16>, Vec<u16>) = ((0..infinity).collect(), (1..=infinity).collect());
    let negative = |numbers: &[u16]| numbers.iter().map(|b| b | SIGN).collect::<Vec<u16>>();
    assert_eq!(moved(&below, infinity)?, above, "{dtype} up");
    assert_eq!(moved(&above, infinity | SIGN)?, below, "{dtype} down");
    assert_eq!(moved(&negative(&below), infinity | SIGN)?, negative(&above), "{dtype} down from negative numbers");
    assert_eq!(moved(&negative(&above), infinity)?, negative(&below), "{dtype} up from negative numbers");
    assert_eq!(moved(&[0, SIGN, infinity], 0)?, [0, 0, infinity - 1], "{dtype} to zero");
    assert_eq!(moved(&[0, SIGN], SIGN + 1)?, [SIGN + 1; 2], "{dtype} from zero");
    // The other is rounded to the dtype first.
    let one = Tensor::new_with([1.0], dtype)?;
    assert_eq!(one.nextafter(&Tensor::new(1.00001f32)?)?.to_vec::<f64>()?, [1.0]);
    assert!(one.nextafter(&Tensor::new(f32::NAN)?)?.isnan()?.all(..)?.item::<bool>()?);
    Ok(())
}

#[test]
fn nextafter_steps_in_the_dtype() -> Result<()> {
    nextafter_steps_in(DType::F16, 0x7c00, half::f16::from_bits, half::f16::to_bits)?;
    nextafter_steps_in(DType::BF16, 0x7f80, half::bf16::from_bits, half::bf16::to_bits)?;
    let x = [1.0f64, -1.0, 0.0, f64::MIN_POSITIVE, f64::MAX];
    let up = Tensor::new_with(x, DType::F64)?.nextafter(&Tensor::new_with([f64::INFINITY], DType::F64)?)?;
    assert_eq!(up.to_vec::<f64>()?, x.map(f64::next_up));
    let down = Tensor::new_with(x, DType::F64)?.nextafter(&Tensor::new_with([f64::NEG_INFINITY], DType::F64)?)?;
    assert_eq!(down.to_vec::<f64>()?, x.map(f64::next_down));
    let x = [f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 1e-40, -1e-40, 3.5, f32::MAX];
    let up = Tensor::new(x)?.nextafter(&Tensor::new([f32::INFINITY])?)?;
    assert_eq!(up.to_vec::<f32>()?, x.map(f32::next_up));
    // The derivative by the second argument is zero.
    let x = Tensor::new([1.0f32, 2.0])?.requires_grad_(true)?;
    let other = Tensor::new([2.0f32, 2.0])?.requires_grad_(true)?;
    x.nextafter(&other)?.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 0.0]);
    assert_eq!(other.grad().unwrap().to_vec::<f32>()?, [0.0, 0.0]);
    Ok(())
}

/// Their sums in `f32` are those in `f64`, rounded twice or thrice.
#[test]
fn modified_bessel_functions_of_f32() -> Result<()> {
    let x = Tensor::arange_with(0.0, 80.0, 1.0 / 256.0, DType::F32)?;
    let functions = [Tensor::i0, Tensor::i0e, Tensor::i1, Tensor::i1e];
    for (i, f) in functions.into_iter().enumerate() {
        for x in [&x, &x.neg()?] {
            let (found, expected) = (f(x)?.to_dtype(DType::F64)?, f(&x.to_dtype(DType::F64)?)?);
            let off = found.sub(&expected)?.abs()?.div(&expected.abs()?.clamp_min(1e-30)?)?.max(..)?.item::<f64>()?;
            assert!(off < 3e-7, "function {i}: {off:e}");
        }
        let half = f(&x.to_dtype(DType::BF16)?)?;
        let rounded = f(&x.to_dtype(DType::BF16)?.to_dtype(DType::F64)?)?.to_dtype(DType::BF16)?;
        let off = half.sub(&rounded)?.abs()?.div(&rounded.abs()?.clamp_min(1e-30)?)?.max(..)?.item::<f64>()?;
        assert!(off <= 1.0 / 128.0, "function {i} of bf16: {off:e}");
    }
    // The function is finite where the exponential is not.
    let large = Tensor::new([89.5f32, 91.0])?;
    let off = large.i0()?.to_dtype(DType::F64)?.div(&large.to_dtype(DType::F64)?.i0()?)?.sub(1.0)?.abs()?;
    assert!(off.max(..)?.item::<f64>()? < 1e-6);
    assert!(Tensor::new([f32::NAN])?.i0()?.isnan()?.all(..)?.item::<bool>()?);
    // A table's values.
    let table = Tensor::new([0.0f32, 0.5, 1.0, 2.0, 3.9, 4.1, 10.0])?.i0()?.to_vec::<f32>()?;
    let expected = [1.0, 1.0634834, 1.266_066, 2.2795853, 10.368958, 12.32357, 2815.7166];
    for (a, b) in table.into_iter().zip(expected) {
        assert!((a - b).abs() <= 3e-7 * b, "{a}, not {b}");
    }
    Ok(())
}
