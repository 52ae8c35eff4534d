//! Initial values: their distribution against PyTorch's, and their rules.

use crate::build::build;
use crate::options::Options;
use rushlight_core::rng::manual_seed;
use rushlight_core::{DType, Result};
use rushlight_nn::init::{self, FanMode, Nonlinearity};
use rushlight_tensor::Tensor;
use serde_json::Value;
use std::collections::BTreeMap;

const GOLDENS: &str = include_str!("../../../../tests/goldens/data/nn/init.json");

fn goldens() -> Value {
    serde_json::from_str(GOLDENS).unwrap()
}

/// Compares a tensor's distribution with PyTorch's, within statistical error.
fn compare(what: &str, ours: &Tensor, theirs: &Value) -> Result<()> {
    let shape: Vec<u64> = theirs["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(ours.shape().iter().map(|&n| n as u64).collect::<Vec<_>>(), shape, "{what}");
    let t = ours.to_dtype(DType::F64)?;
    let of = |name: &str| theirs[name].as_f64().unwrap();
    let (count, std) = (t.numel() as f64, of("std"));
    let near = |name: &str, value: f64, tolerance: f64| {
        assert!((value - of(name)).abs() <= tolerance, "{what}: {name} is {value}, PyTorch's {}", of(name));
    };
    // Both are samples: six deviations of their difference. Other tests draw from the same generator meanwhile.
    near("mean", t.mean(..)?.item()?, 8.5 * std / count.sqrt() + 1e-7);
    near("std", t.std_dims(.., 0.0, false)?.item()?, 8.5 * std / count.sqrt() + 1e-7);
    // The extremes of uniform values are near their bounds; those of normal ones vary too much.
    if (of("max") - of("min")) < 3.8 * std {
        near("min", t.min(..)?.item()?, 80.0 * std / count + 1e-6);
        near("max", t.max(..)?.item()?, 80.0 * std / count + 1e-6);
    }
    Ok(())
}

fn fill(function: &str, o: &Options, t: &Tensor) -> Result<()> {
    let number = |name| o.number(name).unwrap();
    let kaiming = || {
        let mode = if o.text("mode") == Some("fan_out") { FanMode::FanOut } else { FanMode::FanIn };
        let nonlinearity = match o.text("nonlinearity") {
            Some("relu") => Nonlinearity::Relu,
            Some("tanh") => Nonlinearity::Tanh,
            Some("selu") => Nonlinearity::Selu,
            _ => Nonlinearity::LeakyRelu(number("a")),
        };
        (mode, nonlinearity)
    };
    match function {
        "uniform_" => init::uniform_(t, number("a"), number("b")),
        "normal_" => init::normal_(t, number("mean"), number("std")),
        "trunc_normal_" => init::trunc_normal_(t, number("mean"), number("std"), number("a"), number("b")),
        "constant_" => init::constant_(t, number("val")),
        "ones_" => init::ones_(t),
        "zeros_" => init::zeros_(t),
        "xavier_uniform_" => init::xavier_uniform_(t, number("gain")),
        "xavier_normal_" => init::xavier_normal_(t, number("gain")),
        "kaiming_uniform_" => init::kaiming_uniform_(t, kaiming().0, kaiming().1),
        "kaiming_normal_" => init::kaiming_normal_(t, kaiming().0, kaiming().1),
        "orthogonal_" => init::orthogonal_(t, number("gain")),
        "eye_" => init::eye_(t),
        "dirac_" => init::dirac_(t, o.integer("groups").unwrap_or(1) as usize),
        other => panic!("no function {other}"),
    }
}

#[test]
fn initial_values_are_distributed_as_in_pytorch() -> Result<()> {
    manual_seed(3);
    for row in goldens()["statistics"].as_array().unwrap() {
        let options = Options::new(&row["options"], BTreeMap::new());
        let state = row["state"].as_object().unwrap();
        if let Some(function) = row["function"].as_str() {
            let t = Tensor::zeros([60, 40, 3])?;
            fill(function, &options, &t)?;
            compare(&format!("{function} {}", row["options"]), &t, &state["tensor"])?;
            continue;
        }
        let layer = row["layer"].as_str().unwrap();
        let ours = build(layer, &options, None)?.module.state_dict();
        assert_eq!(ours.len(), state.len(), "{layer}");
        for (key, theirs) in state {
            compare(&format!("{layer} {key}"), &ours[key], theirs)?;
        }
    }
    Ok(())
}

#[test]
fn patterns_are_pytorchs() -> Result<()> {
    for row in goldens()["exact"].as_array().unwrap() {
        let shape: Vec<usize> = row["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let t = Tensor::full(&shape, 7.0)?;
        fill(row["function"].as_str().unwrap(), &Options::new(&row["options"], BTreeMap::new()), &t)?;
        let values: Vec<f32> = row["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
        assert_eq!(t.to_vec::<f32>()?, values, "{} {}", row["function"], row["options"]);
    }
    for row in goldens()["gains"].as_array().unwrap() {
        let nonlinearity = match row["nonlinearity"].as_str().unwrap() {
            "linear" => Nonlinearity::Linear,
            "sigmoid" => Nonlinearity::Sigmoid,
            "tanh" => Nonlinearity::Tanh,
            "relu" => Nonlinearity::Relu,
            "selu" => Nonlinearity::Selu,
            _ => Nonlinearity::LeakyRelu(row["param"].as_f64().unwrap()),
        };
        assert!((init::calculate_gain(nonlinearity) - row["gain"].as_f64().unwrap()).abs() < 1e-12, "{row}");
    }
    Ok(())
}

#[test]
fn orthogonal_rows_or_columns_have_the_gains_length() -> Result<()> {
    for shape in [&[5, 3][..], &[3, 5], &[4, 2, 3], &[4, 4]] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let t = Tensor::zeros_with(shape, dtype)?;
            init::orthogonal_(&t, 2.0)?;
            let flat = t.to_dtype(DType::F64)?.flatten(1, -1)?;
            let wide = flat.shape()[0] <= flat.shape()[1];
            let product = if wide { flat.matmul(&flat.t()?)? } else { flat.t()?.matmul(&flat)? };
            let expected = Tensor::eye_with(product.shape()[0], product.shape()[0], DType::F64)?.mul(4.0)?;
            let tolerance = if dtype == DType::BF16 { 0.1 } else { 1e-4 };
            assert!(product.allclose(&expected, 0.0, tolerance)?, "{shape:?} {dtype}");
        }
    }
    Ok(())
}

#[test]
fn truncated_normals_stay_within_and_sparse_columns_have_zeros() -> Result<()> {
    manual_seed(5);
    for dtype in [DType::F32, DType::F64, DType::F16] {
        let t = Tensor::zeros_with([5000], dtype)?;
        init::trunc_normal_(&t, 0.0, 1.0, -0.5, 0.25)?;
        let t = t.to_dtype(DType::F64)?;
        assert!(t.min(..)?.item::<f64>()? >= -0.5 && t.max(..)?.item::<f64>()? <= 0.25);
        assert!(t.std_dims(.., 0.0, false)?.item::<f64>()? > 0.15);
    }
    let t = Tensor::zeros([50, 20])?;
    init::sparse_(&t, 0.3, 0.01)?;
    assert_eq!(t.eq(0.0)?.to_dtype(DType::I64)?.sum(0)?.to_vec::<i64>()?, [15; 20]);
    assert!((t.std_dims(.., 0.0, false)?.item::<f32>()? - 0.01 * 0.7f32.sqrt()).abs() < 2e-3);
    Ok(())
}

#[test]
fn parameters_are_filled_in_place_without_a_tape() -> Result<()> {
    let p = rushlight_nn::Parameter::new(&Tensor::zeros([3, 4])?)?;
    init::xavier_uniform_(&p, 1.0)?;
    init::orthogonal_(&p, 1.0)?;
    init::trunc_normal_(&p, 0.0, 1.0, -2.0, 2.0)?;
    init::eye_(&p)?;
    init::sparse_(&p, 0.5, 1.0)?;
    assert!(p.is_leaf() && p.requires_grad());
    Ok(())
}

#[test]
fn what_cannot_be_filled_says_why() -> Result<()> {
    let (vector, cube) = (Tensor::zeros([3])?, Tensor::zeros([2, 2, 2])?);
    let nan = f64::NAN;
    let cases = [
        (init::xavier_normal_(&vector, 1.0), "fewer than 2 dimensions"),
        (init::kaiming_normal_(&vector, FanMode::FanIn, Nonlinearity::Relu), "fewer than 2 dimensions"),
        (init::eye_(&vector), "expected a matrix"),
        (init::eye_(&cube), "expected a matrix"),
        (init::sparse_(&cube, 0.1, 0.1), "expected a matrix"),
        (init::sparse_(&Tensor::zeros([2, 2])?, 1.5, 0.1), "between 0 and 1"),
        (init::dirac_(&vector, 1), "3, 4 or 5 dimensions"),
        (init::dirac_(&cube, 3), "divisible by groups"),
        (init::dirac_(&cube, 0), "divisible by groups"),
        (init::orthogonal_(&vector, 1.0), "2 or more dimensions"),
        (init::trunc_normal_(&vector, 0.0, 0.0, -1.0, 1.0), "std must be positive"),
        (init::trunc_normal_(&vector, 0.0, 1.0, 1.0, -1.0), "a below b"),
        (init::trunc_normal_(&vector, 0.0, nan, -1.0, 1.0), "std must be positive"),
        (init::uniform_(&vector, 1.0, 0.0), "uniform_"),
        (init::normal_(&vector, 0.0, -1.0), "std"),
    ];
    for (result, part) in cases {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    // Tensors without elements have nothing to fill.
    let empty = Tensor::zeros([0, 5, 3])?;
    init::kaiming_uniform_(&empty, FanMode::FanIn, Nonlinearity::Relu)?;
    init::xavier_uniform_(&empty, 1.0)?;
    init::orthogonal_(&empty, 1.0)?;
    init::dirac_(&empty, 1)?;
    init::trunc_normal_(&empty, 0.0, 1.0, -1.0, 1.0)?;
    Ok(())
}
