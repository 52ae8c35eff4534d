use crate::fixtures;
use rushlight_core::{DType, Result};
use rushlight_graph::{IValue, Model, jit};
use rushlight_io::records::{self, Records};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;

/// Largest difference, relative to values above one.
pub fn difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    let wide = |t: &Tensor| t.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
    wide(a).iter().zip(wide(b)).map(|(x, y)| (x - y).abs() / (1.0 + y.abs())).fold(0.0, f64::max)
}

pub fn check(model: &Model, name: &str) {
    let answers = rushlight_io::pt::load(fixtures().join(format!("{name}.answers.pt"))).unwrap();
    let input = answers.get("input").unwrap().as_tensor().unwrap().clone();
    let run = || -> Result<Vec<Tensor>> {
        let mut out = Vec::new();
        model.forward(&[input.clone().into()])?.tensors(&mut out);
        Ok(out)
    };
    let outputs = answers.get("outputs").unwrap().as_list().unwrap().to_vec();
    for found in [run(), no_grad(run)] {
        let found = found.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(found.len(), outputs.len(), "{name}");
        for (found, wanted) in found.iter().zip(&outputs) {
            let worst = difference(&found.detach(), wanted.as_tensor().unwrap());
            assert!(worst < 1e-5, "{name}: {worst}");
        }
    }
}

pub fn archives() -> Vec<String> {
    let files = std::fs::read_dir(fixtures()).unwrap();
    let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> =
        names.filter_map(|n| n.strip_suffix(".pt").filter(|n| !n.ends_with(".answers")).map(str::to_string)).collect();
    names.sort();
    assert!(names.len() >= 11, "{names:?}");
    names
}

#[test]
fn archives_of_pytorch_run_and_agree() {
    for name in archives() {
        let model = jit::load(fixtures().join(format!("{name}.pt"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        check(&model, &name);
    }
}

/// A program as a function of ops: its norms are inside the convolutions, and other archives give the same numbers.
#[test]
fn archives_freeze() {
    let mut flat = 0;
    for name in archives() {
        let model = jit::load(fixtures().join(format!("{name}.pt"))).unwrap();
        let frozen = model.freeze().unwrap_or_else(|e| panic!("{name}: {e}"));
        check(&frozen, &name);
        let text = frozen.text().unwrap();
        flat += usize::from(frozen.root.is_none());
        if name.starts_with("resnet") {
            assert!(frozen.root.is_none() && !text.contains("batch_norm"), "{name}: {text}");
            assert!(frozen.state_dict().contains_key("fc.weight"), "{:?}", frozen.state_dict().keys());
            // Asking for the rank of a convolution's result does not keep the norm.
            assert_eq!(text.contains("RaiseException"), name.ends_with("script"), "{text}");
        }
        if name.starts_with("control") {
            assert!(frozen.root.is_some(), "{text}");
        }
        assert!(frozen.parameter_names().is_empty());
        // Of itself, and read again.
        let path = std::env::temp_dir().join(format!("rushlight-frozen-{}-{name}.rlm", std::process::id()));
        frozen.save(&path).unwrap();
        check(&Model::load(&path).unwrap().freeze().unwrap(), &name);
        std::fs::remove_file(&path).unwrap();
    }
    assert!(flat >= 8, "{flat}");
}

#[test]
fn freezing_keeps_what_branches_and_lists_do() {
    let code = "class Control(Module):
  __parameters__ = [\"weight\", ]
  __buffers__ = []
  weight : Tensor
  training : bool
  steps : int
  names : List[str]
  def forward(self: __torch__.Control, x: Tensor, flag: bool=True) -> Tensor:
    parts = annotate(List[Tensor], [])
    for i in range(self.steps):
      _0 = torch.append(parts, torch.add(x, i))
    if flag:
      scale = 2
      y = torch.mul(x, scale)
    else:
      scale = 3
      y = torch.neg(x)
    if torch.eq(torch.size(x, 0), 4):
      z = torch.add(y, torch.stack(parts)[torch.sub(self.steps, 1)])
    else:
      ops.prim.RaiseException(torch.format(\"{} rows\", torch.size(x, 0)), \"builtins.ValueError\")
      z = y
    n = torch.len(parts) if flag else 0
    return torch.add(torch.mul(z, scale), n)
";
    let model = changed(code).unwrap();
    let frozen = model.freeze().unwrap();
    assert!(frozen.root.is_none(), "{}", frozen.text().unwrap());
    for flag in [true, false, true] {
        let inputs = [Tensor::randn([4, 4]).unwrap().into(), IValue::Bool(flag)];
        let [a, b] = [&model, &frozen].map(|m| m.forward(&inputs).unwrap().to_tensor().unwrap());
        assert!(difference(&a, &b) < 1e-6, "{flag}");
    }
    let [a, b] = [&model, &frozen]
        .map(|m| m.forward(&[Tensor::ones([4, 4]).unwrap().into()]).map(|v| v.to_tensor().unwrap().to_vec::<f32>()));
    assert_eq!(a.unwrap().unwrap(), b.unwrap().unwrap());
    for m in [&model, &frozen] {
        let error = m.forward(&[Tensor::ones([3, 4]).unwrap().into()]).err().unwrap().to_string();
        assert!(error.contains("3 rows"), "{error}");
    }
    // A changed field has no form as a function.
    let code = code.replace("    parts = annotate", "    self.steps = 2\n    parts = annotate");
    let model = changed(&code).unwrap();
    assert!(model.freeze().unwrap().root.is_some());
}

#[test]
fn an_archive_has_its_weights_and_trains() {
    let model = jit::load(fixtures().join("resnet_trace.pt")).unwrap();
    let state = model.state_dict();
    assert!(state.contains_key("stem.0.weight") && state.contains_key("block.bn1.running_mean"), "{:?}", state.keys());
    assert!(model.parameter_names().contains(&"fc.weight".to_string()));
    assert!(!model.parameter_names().contains(&"block.bn1.running_mean".to_string()));
    let x = Tensor::randn([2, 3, 16, 16]).unwrap();
    let loss = model.forward(&[x.into()]).unwrap().to_tensor().unwrap().square().unwrap().sum(..).unwrap();
    loss.backward().unwrap();
    let grad = state["stem.0.weight"].grad().unwrap();
    assert!(grad.abs().unwrap().sum(..).unwrap().item::<f32>().unwrap() > 0.0);
}

/// A copy of an archive with one code file replaced.
fn changed(code: &str) -> Result<Model> {
    let archive = Records::open(fixtures().join("control_script.pt")).unwrap();
    let names: Vec<String> = archive.names().map(str::to_string).collect();
    let contents: Vec<Vec<u8>> = names
        .iter()
        .map(|n| if n.ends_with("__torch__.py") { code.as_bytes().to_vec() } else { archive.bytes(n).unwrap() })
        .collect();
    let entries: Vec<_> = names.iter().zip(&contents).map(|(n, b)| (n.as_str(), &b[..])).collect();
    let path = std::env::temp_dir().join(format!("rushlight-script-{}-{}.pt", std::process::id(), code.len()));
    records::write(&path, &entries).unwrap();
    let model = Model::load(&path);
    std::fs::remove_file(&path).unwrap();
    model
}

#[test]
fn hostile_code_gives_errors() {
    let class = |body: &str| format!("class Control(Module):\n  def forward(self, x):\n{body}");
    let fails = |code: String, wanted: &str| {
        let run = changed(&code).and_then(|m| m.forward(&[Tensor::ones([4, 4]).unwrap().into()]));
        let message = run.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains(wanted), "{code}: {message}");
    };
    fails(class("    return os.system(\"true\")\n"), "has no op 'os.system'");
    fails(class("    return open(\"/etc/passwd\")\n"), "has no op 'open'");
    fails(class("    return torch.from_file(\"/etc/passwd\")\n"), "has no op");
    fails(class("    return __import__(\"os\")\n"), "has no op");
    fails(class("    import os\n"), "not supported");
    fails(class("    return (self).forward(x)\n"), "nested too deeply");
    fails(class(&format!("    return {}x{}\n", "(".repeat(5000), ")".repeat(5000))), "nested too deeply");
    fails(class(&format!("    return {}x\n", "-".repeat(5000))), "nested too deeply");
    fails(class("    return y\n"), "not defined");
    fails(class("    return torch.select(x, 9, 0)\n"), "select");
    fails(class("    return CONSTANTS.c7\n"), "CONSTANTS.c7");
    fails(class("   y = 1\n    return y\n"), "line");
    fails(class("    return \"abc\n"), "does not end");
    fails("class Other(Module):\n  pass\n".into(), "forward");
    fails(class("    return [0] * 100000000000\n"), "million");
    fails(class("    return torch.floordiv(1, 0)\n"), "zero");
}

#[test]
fn damaged_archives_give_errors() {
    let bytes = std::fs::read(fixtures().join("control_script.pt")).unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let mut copy = bytes.clone();
        copy[at] ^= 0x55;
        if let Ok(model) = Model::from_bytes(&copy) {
            let _ = model.forward(&[IValue::Tensor(Tensor::ones([4, 4]).unwrap())]);
        }
        assert!(Model::from_bytes(&bytes[..at]).is_err());
    }
}
