use crate::fixtures;
use crate::torchscript::{archives, check};
use rushlight_graph::Model;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;

fn saved(model: &Model, name: &str) -> Model {
    let path = std::env::temp_dir().join(format!("rushlight-{}-{name}.rlm", std::process::id()));
    model.save(&path).unwrap();
    let back = Model::load(&path);
    std::fs::remove_file(&path).unwrap();
    back.unwrap()
}

#[test]
fn torchscript_archives_become_rlm_files() {
    for name in archives() {
        let model = Model::load(fixtures().join(format!("{name}.pt"))).unwrap();
        let back = saved(&model, &name);
        check(&back, &name);
        assert_eq!(back.text().unwrap(), model.text().unwrap(), "{name}");
    }
}

const TEXT: &str = r#"
def forward(x: float32[batch, length, 4], y: float32[batch, 4]):
  n = torch.size(x, 0)
  w = weight("w")
  a = nn.functional.linear(x, w, None)
  b = Tensor.reshape(a, [n * torch.size(x, 1), 3])
  return (b, torch.sum(y, [1], True) if n > 1 else y)
"#;

fn example() -> Model {
    let weights = StateDict::from_iter([("w".to_string(), Tensor::ones([3, 4]).unwrap())]);
    Model::from_text(TEXT, weights).unwrap()
}

#[test]
fn sizes_with_names_are_free_and_checked() {
    let model = saved(&example(), "sizes");
    let run = |x: &[usize], y: &[usize]| {
        let inputs = [Tensor::ones(x).unwrap().into(), Tensor::ones(y).unwrap().into()];
        model.forward(&inputs).map(|out| {
            let mut all = Vec::new();
            out.tensors(&mut all);
            all.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>()
        })
    };
    assert_eq!(run(&[2, 5, 4], &[2, 4]).unwrap(), [vec![10, 3], vec![2, 1]]);
    assert_eq!(run(&[1, 7, 4], &[1, 4]).unwrap(), [vec![7, 3], vec![1, 4]]);
    for (x, y, message) in [
        (&[2, 5, 4][..], &[3, 4][..], "'batch') must be 2, got 3"),
        (&[2, 5, 5], &[2, 4], "must be 4, got 5"),
        (&[2, 4], &[2, 4], "takes 3 dimensions"),
    ] {
        let error = run(x, y).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let wrong = [Tensor::zeros([2, 5, 4]).unwrap().to_dtype(rushlight_core::DType::F64).unwrap().into()];
    assert!(model.forward(&wrong).err().unwrap().to_string().contains("takes float32, got float64"));
}

#[test]
fn texts_that_are_no_programs_give_errors() {
    for (text, message) in [
        ("def g(x):\n  return x\n", "no function 'forward'"),
        ("def forward(x:\n  return x\n", "unexpected"),
        ("def forward(x):\n  return weight(\"v\")\n", "weight 'v'"),
        ("def forward(x):\n  with x:\n    pass\n", "not supported"),
    ] {
        let made = Model::from_text(text, StateDict::new());
        let error = made.and_then(|m| m.forward(&[Tensor::ones([1]).unwrap().into()])).err().unwrap().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn frozen_programs_are_recorded() {
    let text = "def forward(x: float32[n, 4], scale: float):\n  a = torch.relu(torch.mul(torch.matmul(x, weight(\"w\")), scale))\n  \
                return {\"sum\": torch.sum(a), \"parts\": [torch.tanh(a), torch.add(a, 1.0)], \"n\": torch.size(x, 0)}\n";
    let weights = StateDict::from_iter([("w".to_string(), Tensor::randn([4, 3]).unwrap())]);
    let model = Model::from_text(text, weights).unwrap();
    let frozen = model.freeze().unwrap();
    for (n, scale) in [(2, 1.0), (2, 1.0), (5, 1.0), (2, 0.5), (2, 0.5), (5, 1.0)] {
        let inputs = [Tensor::randn([n, 4]).unwrap().into(), rushlight_graph::IValue::Float(scale)];
        let (plain, fast) = (model.forward(&inputs).unwrap(), frozen.forward(&inputs).unwrap());
        assert_eq!(plain.to_string(), fast.to_string());
        let tensors = |value: &rushlight_graph::IValue| {
            let mut all = Vec::new();
            value.tensors(&mut all);
            all.iter().map(|t| t.to_vec::<f32>().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(tensors(&plain), tensors(&fast));
    }
    // Results of one call are not those of the next.
    let run = |fill: f64| {
        let inputs = [Tensor::full([2, 4], fill).unwrap().into(), rushlight_graph::IValue::Float(1.0)];
        let mut all = Vec::new();
        frozen.forward(&inputs).unwrap().tensors(&mut all);
        all
    };
    let (first, _) = (run(1.0), run(3.0));
    assert_eq!(first[2].to_vec::<f32>().unwrap(), run(1.0)[2].to_vec::<f32>().unwrap());
    // Several threads at once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..20)
                    .for_each(|_| assert_eq!(run(1.0)[1].to_vec::<f32>().unwrap(), first[1].to_vec::<f32>().unwrap()))
            });
        }
    });
}

#[test]
fn frozen_convolutions_agree() {
    // A residual network in small: a stem, a pooling that keeps channels first, a block with a projection.
    let text = "def forward(x: float32[n, 3, h, w]):\n  \
                a = nn.functional.relu(nn.functional.conv2d(x, weight(\"stem\"), weight(\"b\"), [2, 2], [3, 3]), True)\n  \
                p = nn.functional.max_pool2d(a, [3, 3], [2, 2], [1, 1])\n  \
                c = nn.functional.relu(nn.functional.conv2d(p, weight(\"u\"), weight(\"b\")))\n  \
                d = nn.functional.conv2d(c, weight(\"v\"), None, [1, 1], [1, 1])\n  \
                e = nn.functional.conv2d(p, weight(\"u\"))\n  \
                f = nn.functional.relu(torch.add(d, e))\n  \
                return torch.mean(f, [2, 3])\n";
    let weight = |shape: [usize; 4]| Tensor::randn(shape).unwrap().mul(0.1).unwrap();
    let weights = StateDict::from_iter([
        ("stem".to_string(), weight([32, 3, 7, 7])),
        ("b".to_string(), Tensor::randn([32]).unwrap()),
        ("u".to_string(), weight([32, 32, 1, 1])),
        ("v".to_string(), weight([32, 32, 3, 3])),
    ]);
    let model = Model::from_text(text, weights).unwrap();
    let frozen = model.freeze().unwrap();
    let run = |model: &Model, x: &Tensor| {
        let mut all = Vec::new();
        model.forward(&[x.clone().into()]).unwrap().tensors(&mut all);
        all[0].to_vec::<f32>().unwrap()
    };
    for size in [40, 40, 64, 40] {
        let x = Tensor::randn([2, 3, size, size]).unwrap();
        let (plain, fast) = (run(&model, &x), run(&frozen, &x));
        plain.iter().zip(&fast).for_each(|(a, b)| assert!((a - b).abs() < 1e-4 * (1.0 + a.abs()), "{a} {b}"));
    }
}

#[test]
fn frozen_products_agree() {
    let text = "def forward(x: float32[n, t, 48]):\n  \
                a = nn.functional.gelu(nn.functional.linear(x, weight(\"u\"), weight(\"b\")))\n  \
                b = nn.functional.linear(a, weight(\"v\"))\n  \
                return torch.add(b, x)\n";
    let weights = StateDict::from_iter([
        ("u".to_string(), Tensor::randn([130, 48]).unwrap()),
        ("b".to_string(), Tensor::randn([130]).unwrap()),
        ("v".to_string(), Tensor::randn([48, 130]).unwrap()),
    ]);
    let model = Model::from_text(text, weights).unwrap();
    let frozen = model.freeze().unwrap();
    let run = |model: &Model, x: &Tensor| {
        let mut all = Vec::new();
        model.forward(&[x.clone().into()]).unwrap().tensors(&mut all);
        all[0].to_vec::<f32>().unwrap()
    };
    for [n, t] in [[1, 1], [2, 3], [1, 40], [3, 100], [2, 3], [7, 1]] {
        let x = Tensor::randn([n, t, 48]).unwrap();
        let (plain, fast) = (run(&model, &x), run(&frozen, &x));
        plain.iter().zip(&fast).for_each(|(a, b)| assert!((a - b).abs() < 1e-4 * (1.0 + a.abs()), "{a} {b}"));
    }
}
