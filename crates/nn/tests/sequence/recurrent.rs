use crate::goldens::{Config, Goldens, check, close, device, list};
use rushlight_core::{DType, Result};
use rushlight_nn::{
    GRU, GRUCell, LSTM, LSTMCell, Module, PaddingSide, RNN, RNNCell, RNNNonlinearity, pack_padded_sequence,
    pack_sequence, pad_packed_sequence, pad_sequence,
};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{gradcheck, gradgradcheck, no_grad};
use serde_json::Value;

/// The options that all kinds have, from a case.
macro_rules! configured {
    ($builder:expr, $config:expr) => {
        $builder
            .num_layers($config.size("num_layers").unwrap_or(1))
            .bias($config.flag("bias", true))
            .batch_first($config.flag("batch_first", false))
            .bidirectional($config.flag("bidirectional", false))
            .dtype($config.dtype())
            .build()
            .unwrap()
    };
}

fn nonlinearity(config: &Config) -> RNNNonlinearity {
    if config.text("nonlinearity") == "relu" { RNNNonlinearity::Relu } else { RNNNonlinearity::Tanh }
}

/// Lengths and whether they must be sorted, of a case over packed sequences.
fn packing(goldens: &Goldens, case: &Value) -> Option<(Vec<usize>, bool)> {
    let lengths = goldens.keyword(case, "lengths")?.to_vec::<i64>().unwrap();
    Some((lengths.into_iter().map(|n| n as usize).collect(), case["kwargs"]["enforce_sorted"].as_bool().unwrap()))
}

#[test]
fn recurrent_layers_and_cells_are_pytorchs() {
    let goldens = Goldens::read("recurrent");
    for case in &goldens.cases {
        let config = Config::of(case);
        let batch_first = config.flag("batch_first", false);
        let sizes = (config.required("input_size"), config.required("hidden_size"));
        let packing = packing(&goldens, case);
        macro_rules! layer {
            ($module:expr, |$x:ident| $hx:expr, |$state:ident| $flat:expr) => {{
                let module = $module.to(device()).unwrap();
                check(&goldens, case, &module, |$x| {
                    let (out, $state) = match &packing {
                        None => module.forward(&$x[0], $hx).unwrap(),
                        Some((lengths, sorted)) => {
                            let packed = pack_padded_sequence(&$x[0], lengths, batch_first, *sorted).unwrap();
                            let (out, state) = module.forward_packed(&packed, $hx).unwrap();
                            (pad_packed_sequence(&out, batch_first, 0.0, None).unwrap().0, state)
                        }
                    };
                    let mut all = vec![Some(out)];
                    all.extend($flat.into_iter().map(Some));
                    all
                });
            }};
        }
        match case["module"].as_str().unwrap() {
            "RNN" => layer!(
                configured!(RNN::builder(sizes.0, sizes.1).nonlinearity(nonlinearity(&config)), config),
                |x| x.get(1),
                |state| [state]
            ),
            "GRU" => layer!(configured!(GRU::builder(sizes.0, sizes.1), config), |x| x.get(1), |state| [state]),
            "LSTM" => layer!(
                configured!(LSTM::builder(sizes.0, sizes.1).proj_size(config.size("proj_size").unwrap_or(0)), config),
                |x| x.get(1).zip(x.get(2)),
                |state| [state.0, state.1]
            ),
            "RNNCell" => {
                let module = RNNCell::builder(sizes.0, sizes.1)
                    .nonlinearity(nonlinearity(&config))
                    .bias(config.flag("bias", true))
                    .dtype(config.dtype())
                    .build()
                    .unwrap()
                    .to(device())
                    .unwrap();
                check(&goldens, case, &module, |x| vec![Some(module.forward(&x[0], x.get(1)).unwrap())]);
            }
            "GRUCell" => {
                let module = GRUCell::builder(sizes.0, sizes.1);
                let module = module.bias(config.flag("bias", true)).dtype(config.dtype()).build().unwrap();
                let module = module.to(device()).unwrap();
                check(&goldens, case, &module, |x| vec![Some(module.forward(&x[0], x.get(1)).unwrap())]);
            }
            _ => {
                let module = LSTMCell::builder(sizes.0, sizes.1);
                let module = module.bias(config.flag("bias", true)).dtype(config.dtype()).build().unwrap();
                let module = module.to(device()).unwrap();
                check(&goldens, case, &module, |x| {
                    let (h, c) = module.forward(&x[0], x.get(1).zip(x.get(2))).unwrap();
                    vec![Some(h), Some(c)]
                });
            }
        }
    }
}

#[test]
fn packing_is_pytorchs() {
    let goldens = Goldens::read("pack");
    let sizes = |v: &Value| list(v).iter().map(|n| n.as_u64().unwrap() as usize).collect::<Vec<_>>();
    for case in &goldens.cases {
        let (batch_first, sorted) = (case["batch_first"].as_bool().unwrap(), case["enforce_sorted"].as_bool().unwrap());
        let x = goldens.tensor(&case["x"]);
        let packed = pack_padded_sequence(x, &sizes(&case["lengths"]), batch_first, sorted).unwrap();
        close(packed.data(), goldens.tensor(&case["data"]), "data");
        assert_eq!(packed.batch_sizes(), sizes(&case["batch_sizes"]));
        for (got, want) in
            [(packed.sorted_indices(), &case["sorted_indices"]), (packed.unsorted_indices(), &case["unsorted_indices"])]
        {
            let got = got.map(|t| t.to_vec::<i64>().unwrap().into_iter().map(|i| i as usize).collect::<Vec<_>>());
            assert_eq!(got, want.as_array().map(|_| sizes(want)));
        }
        let total = case["total_length"].as_u64().map(|n| n as usize);
        let (padded, lengths) =
            pad_packed_sequence(&packed, batch_first, case["padding_value"].as_f64().unwrap(), total).unwrap();
        close(&padded, goldens.tensor(&case["padded"]), "padded");
        assert_eq!(lengths, sizes(&case["sizes"]));
    }
}

#[test]
fn sequences_are_packed_and_padded() {
    let [a, b, c] =
        [[1.0f32].as_slice(), &[2.0, 3.0, 4.0], &[5.0, 6.0]].map(|v| Tensor::from_slice(v, [v.len()]).unwrap());
    let packed = pack_sequence(&[&a, &b, &c], false).unwrap();
    assert_eq!(packed.data().to_vec::<f32>().unwrap(), [2.0, 5.0, 1.0, 3.0, 6.0, 4.0]);
    assert_eq!(packed.lengths().unwrap(), [1, 3, 2]);
    assert!(pack_sequence(&[&a, &b, &c], true).is_err());
    let right = pad_sequence(&[&a, &b, &c], true, 0.0, PaddingSide::Right).unwrap();
    assert_eq!(right.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]);
    let left = pad_sequence(&[&a, &c], false, -1.0, PaddingSide::Left).unwrap();
    assert_eq!(left.to_vec::<f32>().unwrap(), [-1.0, 5.0, 1.0, 6.0]);
    assert!(pad_sequence(&[], true, 0.0, PaddingSide::Right).is_err());
    assert!(pad_sequence(&[&a, &Tensor::ones([2, 2]).unwrap()], true, 0.0, PaddingSide::Right).is_err());
    let x = Tensor::ones([3, 2, 1]).unwrap();
    for lengths in [&[3, 4][..], &[3], &[3, 0], &[2, 3], &[]] {
        assert!(pack_padded_sequence(&x, lengths, false, true).is_err(), "{lengths:?}");
    }
    assert!(pad_packed_sequence(&packed, true, 0.0, Some(2)).is_err());
}

#[test]
fn layers_can_be_differentiated_twice() {
    let leaf = |shape: [usize; 3]| Tensor::randn_with(shape, DType::F64).unwrap().requires_grad_(true).unwrap();
    let twice = |forward: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>, inputs: &[Tensor]| {
        gradcheck(forward, inputs).unwrap();
        gradgradcheck(forward, inputs).unwrap();
    };
    // Squares: the incoming gradient depends on the layer's input too.
    let lstm = LSTM::builder(2, 2).bidirectional(true).dtype(DType::F64).build().unwrap();
    let run = |x: &[Tensor]| {
        let (out, (h, c)) = lstm.forward(&x[0], Some((&x[1], &x[2])))?;
        Ok(vec![out.square()?, h, c.square()?])
    };
    twice(&run, &[leaf([3, 1, 2]), leaf([2, 1, 2]), leaf([2, 1, 2])]);
    let gru = GRU::builder(2, 2).bidirectional(true).dtype(DType::F64).build().unwrap();
    let run = |x: &[Tensor]| gru.forward(&x[0], Some(&x[1])).and_then(|(out, h)| Ok(vec![out.square()?, h]));
    twice(&run, &[leaf([3, 1, 2]), leaf([2, 1, 2])]);
    for nonlinearity in [RNNNonlinearity::Tanh, RNNNonlinearity::Relu] {
        let rnn = RNN::builder(2, 2).nonlinearity(nonlinearity).dtype(DType::F64).build().unwrap();
        let run = |x: &[Tensor]| rnn.forward(&x[0], Some(&x[1])).and_then(|(out, h)| Ok(vec![out.square()?, h]));
        twice(&run, &[leaf([3, 1, 2]), leaf([1, 1, 2])]);
    }
}

#[test]
fn dropout_is_between_layers_and_for_training_only() {
    let x = Tensor::randn([4, 2, 3]).unwrap();
    let run = |layer: &GRU| layer.forward(&x, None).unwrap().0;
    let one = GRU::builder(3, 4).dropout(0.5).build().unwrap();
    assert!(run(&one).equal(&run(&one)).unwrap());
    let two = GRU::builder(3, 4).num_layers(2).dropout(0.5).build().unwrap();
    assert!(!run(&two).equal(&run(&two)).unwrap());
    two.eval();
    assert!(run(&two).equal(&run(&two)).unwrap());
}

#[test]
fn long_batches_agree_with_double_precision() {
    // The CPU engine packs the weight of `f32` batches; `f64` is computed step by step from other ops.
    for (steps, batch, hidden) in [(5, 4, 33), (7, 40, 20), (4, 17, 130)] {
        let wide = LSTM::builder(6, hidden).bidirectional(true).dtype(DType::F64).build().unwrap();
        let x = Tensor::randn_with([steps, batch, 6], DType::F64).unwrap();
        let results = [DType::F64, DType::F32].map(|dtype| {
            let lstm = wide.deepcopy().unwrap().to(dtype).unwrap().to(device()).unwrap();
            let x = x.to(dtype).unwrap().to(device()).unwrap().detach().requires_grad_(true).unwrap();
            let (y, last) = lstm.forward(&x, None).unwrap();
            let loss = y.square().unwrap().sum(..).unwrap().add(&last.1.sum(..).unwrap()).unwrap();
            loss.backward().unwrap();
            let weight = lstm.named_parameters().into_iter().find(|(name, _)| name == "weight_hh_l0").unwrap().1;
            [y, last.0, last.1, x.grad().unwrap(), weight.grad().unwrap()].map(|t| t.detach().to(DType::F32).unwrap())
        });
        for (i, (want, got)) in results[0].iter().zip(&results[1]).enumerate() {
            let error = got.sub(want).unwrap().abs().unwrap().max(..).unwrap().item::<f64>().unwrap();
            let size = want.abs().unwrap().max(..).unwrap().item::<f64>().unwrap();
            assert!(error <= 1e-5 * size, "result {i} of {steps} x {batch} x {hidden}: off {error} of {size}");
        }
    }
}

#[test]
fn without_a_backward_the_numbers_are_the_same() {
    // Without one, the gates overwrite the product with the input: of an engine that has a kernel for the dtype.
    for dtype in [DType::F32, DType::F64] {
        let lstm = LSTM::builder(3, 5).num_layers(2).bidirectional(true).dtype(dtype).build().unwrap();
        let x = Tensor::randn_with([4, 2, 3], dtype).unwrap();
        let lstm = lstm.to(device()).unwrap();
        let x = x.to(device()).unwrap();
        let (y, last) = lstm.forward(&x, None).unwrap();
        let (z, end) = no_grad(|| lstm.forward(&x, None)).unwrap();
        for (a, b) in [(&y, &z), (&last.0, &end.0), (&last.1, &end.1)] {
            close(a, b, "an LSTM without gradients");
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert!(LSTM::new(3, 0).is_err());
    assert!(LSTM::builder(3, 4).num_layers(0).build().is_err());
    assert!(LSTM::builder(3, 4).proj_size(4).build().is_err());
    assert!(RNN::builder(3, 4).dropout(1.1).build().is_err());
    let gru = GRU::new(3, 4).unwrap();
    let ones = |shape: &[usize]| Tensor::ones(shape).unwrap();
    for shape in [&[5, 2, 4][..], &[3], &[0, 2, 3], &[1, 5, 2, 3]] {
        assert!(gru.forward(&ones(shape), None).is_err(), "{shape:?}");
    }
    assert!(gru.forward(&ones(&[5, 2, 3]), Some(&ones(&[1, 3, 4]))).is_err());
    assert!(gru.forward(&ones(&[5, 3]), Some(&ones(&[1, 2, 4]))).is_err());
    let packed = pack_padded_sequence(&ones(&[5, 2]), &[5, 3], false, true).unwrap();
    assert!(gru.forward_packed(&packed, None).is_err());
    let cell = LSTMCell::new(3, 4).unwrap();
    assert!(cell.forward(&ones(&[2, 4]), None).is_err());
    assert!(cell.forward(&ones(&[2, 3]), Some((&ones(&[2, 4]), &ones(&[3, 4])))).is_err());
    assert_eq!(
        LSTM::builder(3, 4).num_layers(2).dropout(0.1).batch_first(true).build().unwrap().repr(),
        "LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.1)"
    );
}
