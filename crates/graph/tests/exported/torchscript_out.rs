//! TorchScript archives that we write. The files stay in the build's folder, under `tmp/torchscript`: PyTorch reads and
//! compares them (`scripts/torchscript_out`).

use crate::fixtures;
use crate::torchscript::{archives, check, difference};
use rushlight_graph::{IValue, Model, jit};
use rushlight_io::pt;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, StateDict, Value};
use std::path::PathBuf;

/// A place for an archive.
fn place(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("torchscript");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn tensors(value: &IValue) -> Vec<Tensor> {
    let mut out = Vec::new();
    value.tensors(&mut out);
    out.iter().map(Tensor::detach).collect()
}

/// Writes a program as an archive, reads it back and compares; keeps inputs and outputs beside it.
fn agrees(name: &str, text: &str, weights: StateDict, inputs: &[Vec<Tensor>]) {
    let model = Model::from_text(text, weights).unwrap();
    let path = place(&format!("{name}.pt"));
    model.save_torchscript(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
    let back = jit::load(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(back.state_dict().keys().collect::<Vec<_>>().len(), model.state_dict().len());
    let mut answers = Vec::new();
    for given in inputs {
        let given: Vec<IValue> = given.iter().map(IValue::from).collect();
        let (wanted, found) = (model.forward(&given).unwrap(), back.forward(&given).unwrap_or_else(|e| panic!("{e}")));
        let (wanted, found) = (tensors(&wanted), tensors(&found));
        assert_eq!(wanted.len(), found.len());
        for (a, b) in found.iter().zip(&wanted) {
            assert!(difference(a, b) < 1e-6, "{name}");
        }
        let list = |all: Vec<Tensor>| Value::List(all.into_iter().map(Value::Tensor).collect());
        let mut entry = Dict::new();
        entry.insert("inputs".into(), list(tensors(&IValue::list(given))));
        entry.insert("outputs".into(), list(wanted));
        answers.push(Value::Dict(entry));
    }
    pt::save(&Value::List(answers), place(&format!("{name}.answers.pt"))).unwrap();
}

fn random(names: &[(&str, &[usize])]) -> StateDict {
    let weight = |shape: &[usize]| Tensor::rand(shape)?.sub(0.4)?.requires_grad_(true);
    names.iter().map(|(n, s)| (n.to_string(), weight(s).unwrap())).collect()
}

fn floats(shape: &[usize]) -> Tensor {
    Tensor::randn(shape).unwrap()
}

#[test]
fn convolutions() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, 3, height, width]):
  a = nn.functional.conv2d(x, weight("stem.0.weight"), weight("stem.0.bias"), 2, [1, 1], 1, 1)
  c = nn.functional.batch_norm(a, weight("stem.1.running_mean"), weight("stem.1.running_var"), weight("stem.1.weight"), weight("stem.1.bias"), False, 0.1, 1e-05)
  r = nn.functional.relu(c, True)
  d = nn.functional.max_pool2d(r, 3, 2, 1)
  e = nn.functional.conv2d(d, weight("block.conv.weight"), None, 1, "same", 1, 2)
  f = nn.functional.gelu(torch.add(d, e, alpha=2), approximate="tanh")
  g = nn.functional.interpolate(f, None, [2.0, 2.0], "nearest")
  h = nn.functional.interpolate(f, None, 2, "bilinear", align_corners=False)
  k = nn.functional.pad(torch.cat([g, h], 1), [1, 1, 0, 0], "constant", 1)
  p = nn.functional.adaptive_avg_pool2d(nn.functional.avg_pool2d(k, 2), 1)
  return nn.functional.linear(torch.flatten(p, 1), weight("head"), None)
"#;
    let mut weights = random(&[
        ("stem.0.weight", &[4, 3, 3, 3]),
        ("stem.0.bias", &[4]),
        ("stem.1.running_mean", &[4]),
        ("stem.1.weight", &[4]),
        ("stem.1.bias", &[4]),
        ("block.conv.weight", &[4, 2, 3, 3]),
        ("head", &[5, 8]),
    ]);
    weights.insert("stem.1.running_var".into(), Tensor::rand([4]).unwrap().add(0.5).unwrap());
    agrees("convolutions", text, weights, &[vec![floats(&[2, 3, 17, 16])], vec![floats(&[1, 3, 16, 24])]]);
}

#[test]
fn attention_and_sizes() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: int64[batch, length]):
  n, m, = (torch.size(x, 0), torch.size(x, 1))
  places = torch.arange(m, dtype=torch.float32)
  t = nn.functional.embedding(x, weight("tokens.weight"), None, None, 2.0, False, False)
  y = nn.functional.layer_norm(torch.add(t, torch.unsqueeze(places, 1)), [8], weight("norm.weight"), weight("norm.bias"), 1e-05)
  q, k, v, = torch.chunk(nn.functional.linear(y, weight("qkv.weight"), weight("qkv.bias")), 3, 2)
  q1 = torch.transpose(Tensor.view(q, n, m, 2, 4), 1, 2)
  k1 = torch.transpose(Tensor.view(k, [n, m, 2, 4]), 1, 2)
  v1 = torch.transpose(Tensor.reshape(v, (n, m, 2, 4)), 1, 2)
  a = nn.functional.scaled_dot_product_attention(q1, k1, v1, None, 0.0, True)
  b = torch.reshape(torch.transpose(a, 1, 2), [n * m, 8])
  s = nn.functional.softmax(torch.matmul(b, torch.transpose(b, 0, 1)), dim=-1)
  keep = torch.ge(torch.tril(torch.ones(n * m, n * m)), 0.5)
  w = Tensor.masked_fill(s, torch.logical_not(keep), 0.0)
  top, places1, = torch.topk(torch.sum(w, [1], True), 2, 0)
  best = torch.max(b, 1)
  z = torch.reshape(b, [n, m, 8])
  return (torch.slice(z, 1, 0, m - 1, 1), torch.mean(torch.select(z, 1, -1)), top, best[0], torch.std(z, -1, keepdim=True), torch.clamp(z, min=-0.5), torch.where(torch.gt(z, 0), z, torch.exp(z)))
"#;
    let weights = random(&[
        ("tokens.weight", &[9, 8]),
        ("qkv.weight", &[24, 8]),
        ("qkv.bias", &[24]),
        ("norm.weight", &[8]),
        ("norm.bias", &[8]),
    ]);
    let tokens = |shape: [usize; 2]| Tensor::randint(0, 9, shape).unwrap();
    agrees("attention", text, weights, &[vec![tokens([2, 5])], vec![tokens([3, 4])]]);
}

#[test]
fn recurrent_layers() {
    rushlight_core::rng::manual_seed(0);
    let text = r#"
def forward(x: float32[batch, length, 3]):
  z = torch.zeros(2, torch.size(x, 0), 4)
  y, h, c, = torch.lstm(x, [z, z], [weight("a.0"), weight("a.1"), weight("a.2"), weight("a.3"), weight("b.0"), weight("b.1"), weight("b.2"), weight("b.3")], True, 1, 0.0, False, True, True)
  g, last, = torch.gru(y, torch.zeros(1, torch.size(x, 0), 2), [weight("g.0"), weight("g.1")], False, 1, 0.0, False, False, True)
  if torch.size(x, 1) > 4:
    r = torch.mul(g, 2)
  else:
    r = torch.neg(g)
  return (r, h, c, last)
"#;
    let weights = random(&[
        ("a.0", &[16, 3]),
        ("a.1", &[16, 4]),
        ("a.2", &[16]),
        ("a.3", &[16]),
        ("b.0", &[16, 3]),
        ("b.1", &[16, 4]),
        ("b.2", &[16]),
        ("b.3", &[16]),
        ("g.0", &[6, 8]),
        ("g.1", &[6, 2]),
    ]);
    agrees("recurrent", text, weights, &[vec![floats(&[2, 5, 3])], vec![floats(&[1, 3, 3])]]);
}

/// Archives of PyTorch written back as they were read, and frozen ones as programs.
#[test]
fn archives_are_written_back() {
    let (mut frozen, mut failed) = (0, Vec::new());
    for name in archives() {
        let model = jit::load(fixtures().join(format!("{name}.pt"))).unwrap();
        let path = place(&format!("{name}.back.pt"));
        model.save_torchscript(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        check(&jit::load(&path).unwrap_or_else(|e| panic!("{name}: {e}")), &name);
        let program = model.freeze().unwrap();
        if program.root.is_none() {
            let path = place(&format!("{name}.frozen.pt"));
            match program.save_torchscript(&path).and_then(|()| jit::load(&path)) {
                Ok(back) => check(&back, &name),
                Err(e) if e.to_string().contains("that the program changes") => {}
                Err(e) => failed.push(format!("{name}: {e}")),
            }
            frozen += 1;
        }
    }
    assert!(frozen > 4 && failed.is_empty(), "{frozen} {failed:#?}");
}

#[test]
fn files_beside_the_program() {
    let model = Model::from_text("def forward(x):\n  return torch.neg(x)\n", StateDict::new()).unwrap();
    let path = place("extra.pt");
    model.save_torchscript_with(&path, &[("note.txt".to_string(), b"hello".to_vec())]).unwrap();
    let archive = rushlight_io::records::Records::open(&path).unwrap();
    let found = rushlight_graph::extra_files(&archive, &["note.txt".to_string(), "none".to_string()]).unwrap();
    assert_eq!(found, [Some(b"hello".to_vec()), None]);
}

/// What TorchScript lacks is an error that names the op and the other formats.
#[test]
fn other_ops_are_refused() {
    for (call, named) in [
        ("onnx.Det(x)", "onnx.Det"),
        ("nn.functional.gumbel_softmax(x)", "gumbel_softmax"),
        ("nn.functional.interpolate(x, None, [2.0], \"area\")", "area"),
        ("nn.functional.embedding(x, x, None, 1.0)", "max_norm"),
    ] {
        let text = format!("def forward(x: float32[2, 3]):\n  return {call}\n");
        let model = Model::from_text(&text, StateDict::new()).unwrap();
        let error = model.save_torchscript(place("refused.pt")).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains(".rlm") && error.contains("ONNX"), "{error}");
    }
}
