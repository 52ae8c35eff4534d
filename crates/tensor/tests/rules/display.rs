//! Tensors as text, against PyTorch's.

use rushlight_core::DType;
use rushlight_tensor::{PrintOptions, Tensor};
use serde_json::Value;

fn number(v: &Value) -> f64 {
    match v {
        Value::String(s) => s.parse().expect("inf, -inf or nan"),
        Value::Bool(b) => f64::from(u8::from(*b)),
        other => other.as_f64().expect("a number"),
    }
}

fn build(case: &Value) -> Tensor {
    let shape: Vec<usize> = case["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
    let data = case["data"].as_array().unwrap();
    let dtype = DType::ALL.into_iter().find(|d| d.name() == case["dtype"]).expect("a dtype of ours");
    let wide = if dtype.is_float() || dtype == DType::Bool {
        Tensor::from_slice(&data.iter().map(number).collect::<Vec<f64>>(), &shape)
    } else {
        Tensor::from_slice(&data.iter().map(|v| v.as_i64().unwrap()).collect::<Vec<i64>>(), &shape)
    };
    let tensor = wide.unwrap().to_dtype(dtype).unwrap();
    tensor.requires_grad_(case["requires_grad"].as_bool().unwrap()).unwrap()
}

#[test]
fn prints_what_pytorch_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/data/display.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 100);
    let mut wrong = Vec::new();
    for case in &cases {
        let (got, want) = (build(case).to_string(), case["expected"].as_str().unwrap());
        if got != want {
            wrong.push(format!("expected\n{want}\ngot\n{got}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

#[test]
fn names_the_op_a_tensor_came_from() {
    let x = Tensor::new([1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    assert_eq!(x.mul(2.0).unwrap().to_string(), "tensor([2., 4.], grad_fn=<MulBackward0>)");
    assert_eq!(format!("{x:?}"), "tensor([1., 2.], requires_grad=True)");
    // Strides do not affect the output.
    let t = Tensor::arange(0, 6, 1).unwrap().reshape([2, 3]).unwrap().t().unwrap();
    assert_eq!(t.to_string(), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
}

#[test]
fn long_suffixes_get_a_line_of_their_own() {
    let x = Tensor::full([13], 0.25).unwrap().requires_grad_(true).unwrap();
    let row = ["0.2500"; 9].join(", ");
    let rest = ["0.2500"; 4].join(", ");
    assert_eq!(x.to_string(), format!("tensor([{row},\n        {rest}], requires_grad=True)"));
    let x = Tensor::full([8], 0.25).unwrap().requires_grad_(true).unwrap();
    let row = ["0.2500"; 8].join(", ");
    assert_eq!(x.to_string(), format!("tensor([{row}],\n       requires_grad=True)"));
}

#[test]
fn options_change_the_text() {
    let x = Tensor::new([0.5f32, 1234.5678]).unwrap();
    let show = |options: PrintOptions| x.display(options).to_string();
    let base = PrintOptions::default();
    assert_eq!(show(base), "tensor([5.0000e-01, 1.2346e+03])");
    assert_eq!(show(PrintOptions { sci_mode: Some(false), ..base }), "tensor([   0.5000, 1234.5677])");
    assert_eq!(show(PrintOptions { precision: 1, ..base }), "tensor([5.0e-01, 1.2e+03])");
    let long = Tensor::arange(0, 10, 1).unwrap();
    let show = |options: PrintOptions| long.display(options).to_string();
    assert_eq!(show(PrintOptions { threshold: 5, edgeitems: 1, ..base }), "tensor([0,  ..., 9])");
    assert_eq!(show(PrintOptions { threshold: 5, edgeitems: 0, ..base }), "tensor([...], size=(10,))");
    assert_eq!(
        show(PrintOptions { linewidth: 20, ..base }),
        "tensor([0, 1, 2, 3,\n        4, 5, 6, 7,\n        8, 9])"
    );
    let narrow = PrintOptions { linewidth: 0, threshold: 5, edgeitems: 1, ..base };
    assert_eq!(show(narrow), "tensor([0,\n         ...,\n        9])");
}
