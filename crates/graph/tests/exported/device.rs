//! Programs on a device: `RUSHLIGHT_TEST_DEVICE`, else the CPU. A device that is named must be there.

use rushlight_core::Device;
use rushlight_core::rng::manual_seed;
use rushlight_graph::{Export, Model};
use rushlight_nn::*;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;

fn device() -> Device {
    match std::env::var("RUSHLIGHT_TEST_DEVICE") {
        Ok(name) => name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device"),
        Err(_) => Device::Cpu,
    }
}

fn run(model: &Model, x: &Tensor) -> Tensor {
    no_grad(|| model.forward(&[x.into()])).unwrap().to_tensor().unwrap()
}

/// The largest difference from the CPU's result.
fn far(model: &Model, reference: &Model, x: &Tensor) -> f64 {
    let y = run(model, &x.to(device()).unwrap());
    assert_eq!(y.device(), device());
    let (a, b) = (y.to_vec::<f64>().unwrap(), run(reference, x).to_vec::<f64>().unwrap());
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn exported_programs_run_on_a_device_as_graphs() {
    manual_seed(0);
    let net = Sequential::new()
        .append(Linear::new(6, 8).unwrap())
        .append(LayerNorm::new(8).unwrap())
        .append(GELU::default())
        .append(Linear::new(8, 3).unwrap())
        .append(Softmax::new(-1));
    let x = Tensor::randn([4, 6]).unwrap();
    let exported = Export::of(&net).input("x", &x).dynamic(0, "batch").run(&net).unwrap();
    let moved = exported.to(device()).unwrap();
    assert!(moved.state_dict().values().all(|t| t.device() == device()));
    assert!(far(&moved, &exported, &x) < 1e-5);

    let frozen = moved.freeze().unwrap();
    let captures = rushlight_engines::backend(device()).unwrap().capture().is_some();
    for batch in [4, 4, 4, 2, 2, 2, 4, 2] {
        let x = Tensor::randn([batch, 6]).unwrap();
        assert!(far(&frozen, &exported, &x) < 1e-5);
    }
    // One graph for each size, replayed with the inputs of each call.
    assert_eq!(frozen.graphs(), if captures { 2 } else { 0 });
    assert_eq!(exported.graphs(), 0);

    // A recorded graph reads the weights where they are.
    for (name, weight) in frozen.state_dict() {
        no_grad(|| weight.mul_(0.5).map(|_| ())).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let halved = Model::from_text(&frozen.text().unwrap(), frozen.state_dict()).unwrap().to(Device::Cpu).unwrap();
    assert!(far(&frozen, &halved, &x) < 1e-5);

    // A program that changes its input changes the caller's, also on an engine with graphs.
    let text = "def forward(x: float32[n]):\n  return torch.add(torch.relu_(x), 1.0)\n";
    let changing = Model::from_text(text, Default::default()).unwrap().freeze().unwrap();
    for _ in 0..4 {
        let x = Tensor::new([-1.0f32, 2.0]).unwrap().to(device()).unwrap();
        assert_eq!(run(&changing, &x).to_vec::<f32>().unwrap(), [1.0, 3.0]);
        assert_eq!(x.to_vec::<f32>().unwrap(), [0.0, 2.0]);
    }
    // Values read on the host: no graph, and the same results.
    let text = "def forward(x: float32[n]):\n  return torch.mul(x, float(torch.sum(x)))\n";
    let reading = Model::from_text(text, Default::default()).unwrap().freeze().unwrap();
    for i in 1..5 {
        let x = Tensor::full([2], f64::from(i)).unwrap().to(device()).unwrap();
        assert_eq!(run(&reading, &x).to_vec::<f32>().unwrap(), [(2 * i * i) as f32; 2]);
    }
    assert_eq!(reading.graphs(), 0);
    // Errors are those of the program.
    let error =
        no_grad(|| frozen.forward(&[Tensor::zeros([2, 7]).unwrap().to(device()).unwrap().into()])).err().unwrap();
    assert!(error.to_string().contains("must be 6, got 7"), "{error}");
}
