use crate::torchscript::difference;
use rushlight_core::{DType, Result};
use rushlight_graph::onnx::out::{Options, export};
use rushlight_graph::{IValue, Model};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;

fn tensors(value: &IValue) -> Vec<Tensor> {
    let mut out = Vec::new();
    value.tensors(&mut out);
    out
}

fn random(names: &[(&str, &[usize])]) -> StateDict {
    names.iter().map(|(n, s)| (n.to_string(), Tensor::rand(*s).unwrap().sub(0.4).unwrap())).collect()
}

/// Exports a program, reads the file back and compares both on inputs of several sizes.
fn agrees(text: &str, weights: StateDict, inputs: &[Vec<IValue>]) -> Model {
    let model = Model::from_text(text, weights).unwrap();
    let bytes = export(&model, &[], &Options::default()).unwrap_or_else(|e| panic!("{text}{e}"));
    let back = Model::from_bytes(&bytes).unwrap();
    for given in inputs {
        let (wanted, found) = (model.forward(given).unwrap(), back.forward(given).unwrap_or_else(|e| panic!("{e}")));
        let (wanted, found) = (tensors(&wanted), tensors(&found));
        assert_eq!(wanted.len(), found.len());
        for (a, b) in found.iter().zip(&wanted) {
            let worst = difference(&a.detach(), &b.detach());
            assert!(worst < 1e-5, "{text}{worst}\n{}", back.text().unwrap());
        }
    }
    back
}

fn floats(shape: &[usize]) -> IValue {
    Tensor::randn(shape).unwrap().into()
}

#[test]
fn convolutions_keep_dynamic_sizes() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, 3, height, width]):
  a = nn.functional.conv2d(x, weight("w"), weight("b"), [2, 2], [1, 1], [1, 1], 1)
  c = nn.functional.batch_norm(a, weight("mean"), weight("var"), weight("scale"), weight("shift"), False, 0.1, 1e-05)
  d = nn.functional.max_pool2d(nn.functional.relu(c, True), 2)
  e = nn.functional.adaptive_avg_pool2d(d, 1)
  return nn.functional.linear(torch.flatten(e, 1), weight("fc"), None)
"#;
    let weights =
        random(&[("w", &[4, 3, 3, 3]), ("b", &[4]), ("mean", &[4]), ("scale", &[4]), ("shift", &[4]), ("fc", &[5, 4])]);
    let mut weights = weights;
    weights.insert("var".into(), Tensor::rand([4]).unwrap().add(0.5).unwrap());
    let back = agrees(text, weights, &[vec![floats(&[2, 3, 9, 8])], vec![floats(&[1, 3, 16, 12])]]);
    let text = back.text().unwrap();
    assert!(text.contains("x: float32[batch, 3, height, width]") && text.contains("onnx.Conv("), "{text}");
}

#[test]
fn sizes_are_computed_in_the_graph() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, length, 8]):
  n, m, = (torch.size(x, 0), torch.size(x, 1))
  p, q, = torch.chunk(nn.functional.linear(x, weight("w"), weight("b")), 2, 2)
  q1 = torch.transpose(Tensor.view(p, n, m, 2, 4), 1, 2)
  k1 = torch.transpose(Tensor.view(q, [n, m, 2, 4]), 1, 2)
  a = nn.functional.scaled_dot_product_attention(q1, k1, k1, None, 0.0, True)
  b = torch.reshape(torch.transpose(a, 1, 2), [n * m, 8])
  places = torch.arange(m, dtype=torch.float32)
  c = torch.add(torch.reshape(b, [n, m, 8]), torch.unsqueeze(places, 1))
  mask = torch.tril(torch.ones(m, m))
  return (nn.functional.layer_norm(c, [8], weight("g"), weight("h"), 1e-05), torch.sum(mask), torch.slice(c, 1, 0, m - 1, 1))
"#;
    let weights = random(&[("w", &[16, 8]), ("b", &[16]), ("g", &[8]), ("h", &[8])]);
    agrees(text, weights, &[vec![floats(&[2, 5, 8])], vec![floats(&[1, 3, 8])]]);
}

#[test]
fn recurrent_layers_are_onnx_operators() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, length, 3]):
  h = torch.zeros(2, torch.size(x, 0), 4)
  y, s, c, = torch.lstm(x, [h, h], [weight("a"), weight("b"), weight("c"), weight("d"), weight("e"), weight("f"), weight("g"), weight("i")], True, 1, 0.0, False, True, True)
  z, last, = torch.gru(y, torch.zeros(1, torch.size(x, 0), 5), [weight("p"), weight("q")], False, 1, 0.0, False, False, True)
  return (z, s, c, last)
"#;
    let names: [(&str, &[usize]); 10] = [
        ("a", &[16, 3]),
        ("b", &[16, 4]),
        ("c", &[16]),
        ("d", &[16]),
        ("e", &[16, 3]),
        ("f", &[16, 4]),
        ("g", &[16]),
        ("i", &[16]),
        ("p", &[15, 8]),
        ("q", &[15, 5]),
    ];
    let back = agrees(text, random(&names), &[vec![floats(&[2, 5, 3])], vec![floats(&[1, 7, 3])]]);
    assert!(back.text().unwrap().contains("onnx.LSTM("));
}

#[test]
fn in_place_ops_and_constants() {
    let text = r#"
def forward(x: float32[n, 3]):
  t = torch.mul(weight("k"), 2.0)
  y = torch.add(x, t)
  z = Tensor.mul_(y, 3.0)
  w = torch.add(y, 1.0)
  return (w, torch.div(w, 2, rounding_mode="floor"), torch.eq(w, y), x.to(torch.int64))
"#;
    let back = agrees(text, random(&[("k", &[3])]), &[vec![floats(&[2, 3])]]);
    // The product of constants was folded.
    assert_eq!(back.text().unwrap().matches("onnx.Mul(").count(), 1, "{}", back.text().unwrap());
}

fn refused(text: &str) -> String {
    let model = Model::from_text(text, random(&[("k", &[3])])).unwrap();
    let made: Result<Vec<u8>> = export(&model, &[], &Options::default());
    made.err().unwrap().to_string()
}

#[test]
fn what_has_no_mapping_is_refused_by_name() {
    let program = |body: &str| format!("def forward(x: float32[n, 3]):\n  {body}\n");
    assert!(refused(&program("return torch.logit(x)")).contains("no mapping for the op 'torch.logit'"));
    assert!(refused(&program("return torch.randn_like(x)")).contains("random"));
    assert!(refused(&program("return nn.functional.dropout(x, 0.5, True)")).contains("eval()"));
    assert!(refused(&program("return torch.mul(x, torch.size(x, 0) / 2)")).contains("dynamic size"));
    assert!(refused(&program("return Tensor.add_(weight(\"k\"), 1.0)")).contains("weight"));
    let branch = "def forward(x: float32[n, 3]):\n  if torch.size(x, 0) > 7:\n    return x\n  return torch.neg(x)\n";
    assert!(refused(branch).contains("dynamic size"));
    let view = "y = torch.neg(x)\n  z = torch.select(y, 1, 0)\n  w = Tensor.zero_(z)\n  return torch.add(y, 1)";
    assert!(refused(&program(view)).contains("in place"));
    let model = Model::from_text(&program("return x"), StateDict::new()).unwrap();
    assert!(export(&model, &[], &Options { opset: 9, ..Options::default() }).is_err());
}

#[test]
fn an_imported_model_goes_out_again() {
    let path =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx/convolutional.onnx");
    let model = Model::load(path).unwrap();
    let bytes = export(&model, &[], &Options::default()).unwrap();
    let back = Model::from_bytes(&bytes).unwrap();
    let x = floats(&[2, 3, 8, 8]);
    let wanted = model.forward(std::slice::from_ref(&x)).unwrap().to_tensor().unwrap();
    let found = back.forward(&[x]).unwrap().to_tensor().unwrap();
    assert!(difference(&found.detach(), &wanted.detach()) < 1e-5);
    assert_eq!(found.dtype(), DType::F32);
}

#[test]
fn frozen_programs_agree_and_lose_their_norms() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, 3, 8, 8]):
  a = nn.functional.conv2d(x, weight("w"), None, [1, 1], [1, 1], [1, 1], 1)
  b = nn.functional.batch_norm(a, weight("mean"), weight("var"), weight("scale"), weight("shift"), False, 0.1, 1e-05)
  k = torch.mul(weight("shift"), 2.0)
  return torch.add(torch.relu(b), torch.reshape(k, [1, 4, 1, 1]))
"#;
    let mut weights = random(&[("w", &[4, 3, 3, 3]), ("mean", &[4]), ("scale", &[4]), ("shift", &[4])]);
    weights.insert("var".into(), Tensor::rand([4]).unwrap().add(0.5).unwrap());
    let model = Model::from_text(text, weights).unwrap();
    let frozen = model.freeze().unwrap();
    let x = floats(&[2, 3, 8, 8]);
    let wanted = model.forward(std::slice::from_ref(&x)).unwrap().to_tensor().unwrap();
    let found = frozen.forward(&[x]).unwrap().to_tensor().unwrap();
    assert!(difference(&found, &wanted) < 1e-5);
    let shown = frozen.text().unwrap();
    assert!(!shown.contains("batch_norm") && !shown.contains("torch.mul") && shown.contains("conv2d"), "{shown}");
}

#[test]
fn kthvalue_is_the_last_of_the_smallest() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, 7]):
  a, i, = torch.kthvalue(x, 3, 1, False)
  b, j, = torch.kthvalue(x, 7, 1, True)
  return (a, i, b, j)
"#;
    agrees(text, StateDict::new(), &[vec![floats(&[4, 7])], vec![floats(&[2, 7])]]);
}
