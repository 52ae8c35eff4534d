//! Answers of PyTorch and of written-out formulas: see `tests/goldens/data_*.py`.

use rushlight_core::DType;
use rushlight_data::sampler::{DistributedSampler, Sampler};
use rushlight_data::text::{Bpe, Tokenizer, split_words};
use rushlight_data::transform::*;
use rushlight_data::{Collate, SampleRng, SplitLength};
use rushlight_tensor::Tensor;
use serde_json::Value;

fn load(name: &str) -> Value {
    let path = format!("{}/../../tests/goldens/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn counts(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

fn tensor(value: &Value) -> Tensor {
    let data: Vec<f32> = numbers(&value["data"]).into_iter().map(|v| v as f32).collect();
    let dtype = if value["dtype"] == "uint8" { DType::U8 } else { DType::F32 };
    Tensor::from_slice(&data, counts(&value["shape"])).unwrap().to_dtype(dtype).unwrap()
}

#[test]
fn transforms() {
    let goldens = load("data_transforms.json");
    for case in goldens["cases"].as_array().unwrap() {
        let (image, args) = (tensor(&case["image"]), &case["args"]);
        let factor = || args["factor"].as_f64().unwrap();
        let size = || <[usize; 2]>::try_from(counts(&args["size"])).unwrap();
        let mut rng = SampleRng::new(0);
        let op = case["op"].as_str().unwrap();
        let out = match op {
            "brightness" => adjust_brightness(&image, factor()),
            "contrast" => adjust_contrast(&image, factor()),
            "saturation" => adjust_saturation(&image, factor()),
            "grayscale" => rgb_to_grayscale(&image),
            "hue" => adjust_hue(&image, args["shift"].as_f64().unwrap()),
            "normalize" => {
                Normalize::new(numbers(&args["mean"]), numbers(&args["std"])).unwrap().apply(&image, &mut rng)
            }
            "to_tensor" => ToTensor::default().apply(&image, &mut rng),
            "resize" => resize(&image, size(), args["antialias"].as_bool().unwrap()),
            "center_crop" => CenterCrop::new(size()).apply(&image, &mut rng),
            other => panic!("no transform {other}"),
        }
        .unwrap();
        let expected = tensor(&case["out"]);
        assert_eq!((out.shape(), out.dtype()), (expected.shape(), expected.dtype()), "{op} {args}");
        // Bytes may differ by one if sums in another order round differently.
        let tolerance = if out.dtype() == DType::U8 { 1.0 } else { 2e-6 };
        let (a, b) = (out.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap());
        let off = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst <= tolerance, "{op} {args}: differs by {worst}");
        assert!(out.dtype() != DType::U8 || off * 50 <= a.len(), "{op} {args}: {off} of {} differ", a.len());
    }
}

#[test]
fn split_lengths() {
    for case in load("data_transforms.json")["splits"].as_array().unwrap() {
        let total = case["total"].as_u64().unwrap() as usize;
        let lengths = f64::resolve(&numbers(&case["fractions"]), total).unwrap();
        assert_eq!(lengths, counts(&case["lengths"]), "{case}");
    }
}

#[test]
fn distributed_shares() {
    for case in load("data_transforms.json")["shares"].as_array().unwrap() {
        let replicas = case["replicas"].as_u64().unwrap() as usize;
        for (rank, expected) in case["ranks"].as_array().unwrap().iter().enumerate() {
            let sampler = DistributedSampler::new(case["len"].as_u64().unwrap() as usize, replicas, rank)
                .unwrap()
                .shuffle(false)
                .drop_last(case["drop_last"].as_bool().unwrap());
            let indices: Vec<usize> = sampler.iter(0).unwrap().collect();
            assert_eq!(indices, counts(expected), "{case}");
            assert_eq!(sampler.len(), indices.len());
        }
    }
}

#[test]
fn collated_dtypes() {
    let expected = &load("data_transforms.json")["collated"];
    assert_eq!(expected["ints"], i64::collate(vec![1, 2]).unwrap().dtype().name());
    assert_eq!(expected["floats"], f64::collate(vec![1.0, 2.0]).unwrap().dtype().name());
    assert_eq!(expected["bools"], bool::collate(vec![true, false]).unwrap().dtype().name());
}

#[test]
fn gpt2_words() {
    for case in load("data_text.json")["splits"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<&str> = case["words"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
        assert_eq!(split_words(text).collect::<Vec<_>>(), expected, "{text:?}");
    }
}

#[test]
fn bpe() {
    let goldens = load("data_text.json");
    let pairs: Vec<(&str, &str)> = goldens["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m[0].as_str().unwrap(), m[1].as_str().unwrap()))
        .collect();
    let text = format!("#version: 0.2\n{}\n", pairs.iter().map(|(a, b)| format!("{a} {b}\n")).collect::<String>());
    let read = Bpe::parse(&goldens["vocab"].to_string(), &text).unwrap();
    let trained = Bpe::train(goldens["corpus"].as_str().unwrap(), 330).unwrap();
    assert_eq!(trained.vocab_size(), goldens["vocab"].as_object().unwrap().len());
    for case in goldens["encoded"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u32> = counts(&case["tokens"]).into_iter().map(|t| t as u32).collect();
        assert_eq!(read.encode(text).unwrap(), expected, "{text:?}");
        assert_eq!(trained.encode(text).unwrap(), expected, "trained: {text:?}");
        assert_eq!(read.decode(&expected).unwrap(), text);
    }
}
