//! Metrics against torchmetrics' values (tests/goldens/metrics.py), batch by batch and interrupted half-way.

use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_train::Ranks;
use rushlight_train::metrics::*;
use serde_json::Value as Json;
use std::path::Path;

fn flat(json: &Json, numbers: &mut Vec<f64>, shape: &mut Vec<usize>, depth: usize) {
    match json {
        Json::Array(items) => {
            if shape.len() == depth {
                shape.push(items.len());
            }
            items.iter().for_each(|item| flat(item, numbers, shape, depth + 1));
        }
        other => numbers.push(other.as_f64().unwrap()),
    }
}

fn tensor(json: &Json, integers: bool) -> Result<Tensor> {
    let (mut numbers, mut shape) = (Vec::new(), Vec::new());
    flat(json, &mut numbers, &mut shape, 0);
    match integers {
        true => Tensor::from_slice(&numbers.iter().map(|n| *n as i64).collect::<Vec<_>>(), shape),
        false => Tensor::from_slice(&numbers, shape),
    }
}

/// A metric by its name: its update function, and the metric itself.
macro_rules! made {
    ($metric:expr) => {{
        let metric = $metric;
        let own = metric.clone();
        let update = move |a: &Tensor, b: &Tensor| own.update(a, b);
        (Box::new(update) as Box<dyn Fn(&Tensor, &Tensor) -> Result<()>>, Box::new(metric) as Box<dyn Metric>)
    }};
}

fn make(kind: &str, options: &Json) -> (Box<dyn Fn(&Tensor, &Tensor) -> Result<()>>, Box<dyn Metric>) {
    let number = |name: &str| options.get(name).and_then(Json::as_i64);
    let classes = number("num_classes").unwrap_or(2) as usize;
    let average = match options.get("average").and_then(Json::as_str) {
        Some("micro") => Average::Micro,
        Some("weighted") => Average::Weighted,
        _ => Average::Macro,
    };
    match kind {
        "Accuracy" => {
            let metric = Accuracy::new().top_k(number("top_k").unwrap_or(1) as usize);
            made!(match number("ignore_index") {
                Some(class) => metric.ignore_index(class),
                None => metric,
            })
        }
        "Precision" => made!(Precision::new(classes).average(average)),
        "Recall" => made!(Recall::new(classes).average(average)),
        "F1Score" => made!(F1Score::new(classes).average(average)),
        "ConfusionMatrix" => made!(ConfusionMatrix::new(classes)),
        "Auroc" => made!(match number("num_classes") {
            Some(n) => Auroc::multiclass(n as usize),
            None => Auroc::binary(),
        }),
        "MeanSquaredError" => made!(MeanSquaredError::new()),
        "MeanAbsoluteError" => made!(MeanAbsoluteError::new()),
        "R2Score" => made!(R2Score::new()),
        "Perplexity" => made!(match number("ignore_index") {
            Some(token) => Perplexity::new().ignore_index(token),
            None => Perplexity::new(),
        }),
        other => panic!("no metric {other}"),
    }
}

fn goldens() -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/data/metrics.json");
    let text = std::fs::read_to_string(path).unwrap();
    let all: Json = serde_json::from_str(&text).unwrap();
    all["cases"].as_array().unwrap().clone()
}

#[test]
fn values_are_torchmetrics() -> Result<()> {
    let alone = Ranks::alone();
    for case in goldens().iter().filter(|case| case["metric"] != "BleuScore") {
        let (name, kind) = (case["name"].as_str().unwrap(), case["metric"].as_str().unwrap());
        let integers = !matches!(kind, "MeanSquaredError" | "MeanAbsoluteError" | "R2Score");
        let (update, metric) = make(kind, &case["options"]);
        let batches: Vec<(Tensor, Tensor)> = case["batches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| Ok((tensor(&pair[0], false)?, tensor(&pair[1], integers)?)))
            .collect::<Result<_>>()?;
        batches.iter().try_for_each(|(a, b)| update(a, b)).map_err(|e| e.within(name))?;
        let expected = case["value"].as_f64().unwrap();
        let check = |value: f64| assert!((value - expected).abs() < 2e-6, "{name}: {value}, torchmetrics {expected}");
        if kind != "ConfusionMatrix" {
            check(metric.value(&alone)?);
        }
        // Saved after two batches and restored in another instance, it continues.
        metric.reset()?;
        batches[..2].iter().try_for_each(|(a, b)| update(a, b))?;
        let saved = metric.state()?;
        let (update, other) = make(kind, &case["options"]);
        update(&batches[2].0, &batches[2].1)?;
        other.merge(&saved)?;
        update(&batches[3].0, &batches[3].1)?;
        if kind != "ConfusionMatrix" {
            check(other.value(&alone)?);
        }
    }
    Ok(())
}

#[test]
fn the_confusion_matrix_is_torchmetrics() -> Result<()> {
    let all = goldens();
    let case = all.iter().find(|case| case["metric"] == "ConfusionMatrix").unwrap();
    let matrix = ConfusionMatrix::new(4);
    for pair in case["batches"].as_array().unwrap() {
        matrix.update(&tensor(&pair[0], false)?, &tensor(&pair[1], true)?)?;
    }
    let expected: Vec<Vec<f64>> = serde_json::from_value(case["options"]["matrix"].clone()).unwrap();
    assert_eq!(matrix.matrix(&Ranks::alone())?, expected);
    Ok(())
}

#[test]
fn bleu_is_torchmetrics() -> Result<()> {
    for case in goldens().iter().filter(|case| case["metric"] == "BleuScore") {
        let n = case["options"].get("n_gram").and_then(Json::as_u64).unwrap_or(4);
        let bleu = BleuScore::new().n_gram(n as usize).smooth(case["options"].get("smooth").is_some());
        for pair in case["batches"].as_array().unwrap() {
            let translations: Vec<String> = serde_json::from_value(pair[0].clone()).unwrap();
            let references: Vec<Vec<String>> = serde_json::from_value(pair[1].clone()).unwrap();
            bleu.update(&translations, &references)?;
        }
        let (value, expected) = (bleu.compute()?, case["value"].as_f64().unwrap());
        assert!((value - expected).abs() < 1e-6, "{}: {value}, torchmetrics {expected}", case["name"]);
    }
    Ok(())
}

#[test]
fn misuse_is_told() -> Result<()> {
    let t = |shape: &[usize]| Tensor::zeros(shape);
    let fails = |result: Result<()>| result.err().map(|e: Error| e.to_string()).unwrap_or_default();
    assert!(fails(Accuracy::new().update(&t(&[3])?, &t(&[4])?)).contains("[3]"));
    assert!(fails(MeanSquaredError::new().update(&t(&[3])?, &t(&[4])?)).contains("MeanSquaredError"));
    assert!(fails(Perplexity::new().update(&t(&[3, 2])?, &t(&[4])?)).contains("vocabulary"));
    let beyond = Precision::new(2).update(&Tensor::new([5i64])?, &Tensor::new([0i64])?);
    assert!(fails(beyond).contains("between 0 and 1"));
    assert!(R2Score::new().compute().is_err());
    assert_eq!(Accuracy::new().compute()?, 0.0);
    let mean = MeanMetric::new();
    mean.update(&Tensor::new([1.0f32, 2.0])?, 1.0)?;
    mean.update(&Tensor::new([6.0f32])?, 2.0)?;
    assert_eq!(mean.compute()?, 15.0 / 4.0);
    let running = RunningMean::new(2);
    [1.0, 2.0, 4.0].into_iter().for_each(|v| running.update(v));
    assert_eq!(running.compute()?, 3.0);
    Ok(())
}
