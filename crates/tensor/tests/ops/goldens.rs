//! Every op against PyTorch's recorded answers, forward and backward; see `tests/goldens/README.md`.

use crate::support;
use rushlight_core::DType;
use rushlight_tensor::{Arg, Tensor, result_type};
use serde_json::Value;

macro_rules! families {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            support::run::family(stringify!($name));
        }
    )*};
}

families! {
    activation attention binary compare conv creation index linalg loss matmul norm pad pointwise pool reduce resize scan scatter
    shape sort ternary
}

#[test]
fn every_family_is_run() {
    let source = include_str!("goldens.rs");
    for entry in std::fs::read_dir(support::data::path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(family) = name.strip_suffix(".safetensors") {
            assert!(source.split_whitespace().any(|word| word == family), "{name} is not run");
        }
    }
}

#[test]
fn promotion() {
    let rows: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(support::data::path("promotion.json")).unwrap()).unwrap();
    let build = |v: &Value| -> Option<Tensor> {
        let dtype = support::data::dtype(v["type"].as_str().unwrap());
        match v["kind"].as_str().unwrap() {
            "number" => None,
            "zero-dim" => Some(Tensor::ones_with([], dtype.unwrap()).unwrap()),
            _ => Some(Tensor::ones_with([2], dtype.unwrap()).unwrap()),
        }
    };
    fn arg<'a>(v: &Value, tensor: &'a Option<Tensor>) -> Arg<'a> {
        match (tensor, v["type"].as_str().unwrap()) {
            (Some(t), _) => t.into(),
            (None, "bool") => true.into(),
            (None, "int") => 1.into(),
            (None, _) => 1.0.into(),
        }
    }
    for row in &rows {
        let (a, b) = (build(&row["a"]), build(&row["b"]));
        let got = result_type(&[arg(&row["a"], &a), arg(&row["b"], &b)]);
        let want: DType = support::data::dtype(row["result"].as_str().unwrap()).unwrap();
        assert_eq!(got, want, "{row}");
    }
    assert!(rows.len() > 500);
}
