use crate::goldens::{Goldens, close, list};
use rushlight_core::DType;
use rushlight_nn::{CTCLoss, ctc_loss};
use rushlight_tensor::autograd::{Backward, grad, gradcheck_with};
use rushlight_tensor::{Reduction, Tensor};
use serde_json::Value;

#[test]
fn ctc_loss_is_pytorchs() {
    let goldens = Goldens::read("ctc");
    let lengths = |v: &Value| -> Vec<usize> {
        let number = |v: &Value| v.as_u64().unwrap() as usize;
        if v.is_array() { list(v).iter().map(number).collect() } else { vec![number(v)] }
    };
    for (i, case) in goldens.cases.iter().enumerate() {
        let kwargs = &case["kwargs"];
        let loss = CTCLoss::new()
            .blank(kwargs["blank"].as_u64().unwrap_or(0) as usize)
            .zero_infinity(kwargs["zero_infinity"].as_bool().unwrap_or(false))
            .reduction(match kwargs["reduction"].as_str() {
                Some("none") => Reduction::None,
                Some("sum") => Reduction::Sum,
                _ => Reduction::Mean,
            });
        let x = goldens.tensor(&case["log_probs"]).detach().requires_grad_(true).unwrap();
        let targets = goldens.tensor(&case["targets"]);
        let loss =
            loss.forward(&x, targets, &lengths(&case["input_lengths"]), &lengths(&case["target_lengths"])).unwrap();
        close(&loss, goldens.tensor(&case["loss"]), &format!("loss {i}"));
        loss.backward_with(Backward::default().gradient(goldens.tensor(&case["dy"]))).unwrap();
        close(&x.grad().unwrap(), goldens.tensor(&case["dx"]), &format!("gradient {i}"));
    }
}

#[test]
fn the_gradient_is_that_of_differences() {
    let x = Tensor::randn_with([5, 2, 4], DType::F64).unwrap().requires_grad_(true).unwrap();
    let targets = Tensor::new([[1i64, 1], [3, 0]]).unwrap();
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        let loss =
            |x: &[Tensor]| Ok(vec![ctc_loss(&x[0].log_softmax(-1)?, &targets, &[5, 4], &[2, 1], 2, reduction, false)?]);
        gradcheck_with(loss, std::slice::from_ref(&x), 1e-6, 1e-6, 1e-4).unwrap();
    }
}

#[test]
fn many_sequences_are_shared_by_threads() {
    let (steps, batch, classes, length) = (200, 8, 6, 60);
    let x = Tensor::randn([steps, batch, classes]).unwrap().log_softmax(-1).unwrap();
    let x = x.detach().requires_grad_(true).unwrap();
    let targets = Tensor::randint(1, classes as i64, [batch, length]).unwrap();
    let losses = |x: &Tensor, targets: &Tensor| {
        let n = x.shape()[1];
        ctc_loss(x, targets, &vec![steps; n], &vec![length; n], 0, Reduction::None, false).unwrap()
    };
    let all = losses(&x, &targets);
    all.sum(..).unwrap().backward().unwrap();
    let together = x.grad().unwrap();
    for i in 0..batch as isize {
        let one = x.detach().narrow(1, i, 1).unwrap().requires_grad_(true).unwrap();
        let alone = losses(&one, &targets.narrow(0, i, 1).unwrap());
        assert!(alone.equal(&all.narrow(0, i, 1).unwrap()).unwrap());
        alone.sum(..).unwrap().backward().unwrap();
        assert!(one.grad().unwrap().equal(&together.narrow(1, i, 1).unwrap()).unwrap());
    }
}

#[test]
fn hopeless_targets_cost_infinity() {
    let x = Tensor::zeros([2, 1, 3]).unwrap().log_softmax(-1).unwrap();
    let targets = Tensor::new([[1i64, 1]]).unwrap();
    let loss = |steps: usize, labels: usize, zero_infinity: bool| {
        ctc_loss(&x, &targets, &[steps], &[labels], 0, Reduction::None, zero_infinity).unwrap().item::<f32>().unwrap()
    };
    assert_eq!(loss(2, 2, false), f32::INFINITY);
    assert_eq!(loss(2, 2, true), 0.0);
    assert_eq!(loss(0, 1, false), f32::INFINITY);
    assert_eq!(loss(0, 0, false), 0.0);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = Tensor::zeros([4, 2, 3]).unwrap().log_softmax(-1).unwrap();
    let targets = Tensor::new([[1i64, 2], [2, 1]]).unwrap();
    let fails = |x: &Tensor, targets: &Tensor, inputs: &[usize], labels: &[usize], blank: usize| {
        assert!(ctc_loss(x, targets, inputs, labels, blank, Reduction::Mean, false).is_err());
    };
    fails(&x, &targets, &[5, 4], &[2, 2], 0);
    fails(&x, &targets, &[4], &[2, 2], 0);
    fails(&x, &targets, &[4, 4], &[2, 3], 0);
    fails(&x, &targets, &[4, 4], &[2, 2], 3);
    fails(&x, &Tensor::new([[1i64, 3], [2, 1]]).unwrap(), &[4, 4], &[2, 2], 0);
    fails(&x, &Tensor::new([[1i64, -1], [2, 1]]).unwrap(), &[4, 4], &[2, 2], 0);
    fails(&x, &Tensor::new([1i64, 2, 2]).unwrap(), &[4, 4], &[2, 2], 0);
    fails(&x, &Tensor::ones([2, 2]).unwrap(), &[4, 4], &[2, 2], 0);
    fails(&Tensor::zeros([4]).unwrap(), &targets, &[4, 4], &[2, 2], 0);
    fails(&x, &targets, &[usize::MAX, 4], &[usize::MAX, 2], 0);

    let leaf = x.detach().requires_grad_(true).unwrap();
    let loss = CTCLoss::new().forward(&leaf, &targets, &[4, 4], &[2, 2]).unwrap();
    let first = grad(&[&loss], &[&leaf], Backward::default().create_graph(true)).unwrap().remove(0).unwrap();
    let second = first.sum(..).unwrap().backward().unwrap_err().to_string();
    assert!(second.contains("differentiated again"), "{second}");
}
