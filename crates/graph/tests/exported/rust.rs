//! Programs of Rust modules. The reference is the module itself, which other tests compare with PyTorch.

use rushlight_core::rng::manual_seed;
use rushlight_core::{DType, Result};
use rushlight_graph::{Export, IValue, Model, export};
use rushlight_nn::*;
use rushlight_tensor::{PadMode, Tensor, autograd::no_grad, cat, where_};

/// Runs a model as it is, saved and loaded, and frozen, where the second call is a recorded one.
fn check(model: &Model, name: &str, inputs: &[Tensor], expected: &[Tensor]) {
    let path = std::env::temp_dir().join(format!("rushlight-{}-{name}.rlm", std::process::id()));
    model.save(&path).unwrap();
    let loaded = Model::load(&path);
    std::fs::remove_file(&path).unwrap();
    let loaded = loaded.unwrap();
    let frozen = loaded.freeze().unwrap();
    let values: Vec<IValue> = inputs.iter().map(IValue::from).collect();
    for (what, model) in [("exported", model), ("loaded", &loaded), ("frozen", &frozen), ("again", &frozen)] {
        let mut found = Vec::new();
        no_grad(|| model.forward(&values)).unwrap().tensors(&mut found);
        assert_eq!(found.len(), expected.len(), "{name}, {what}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()), "{name}, {what}");
            let (a, b) = (found.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap());
            let far = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-5, "{name}, {what}: {far}");
        }
    }
}

fn tokens(batch: usize, length: usize) -> Tensor {
    let all: Vec<i64> = (0..batch * length).map(|i| (i * 7 % 23) as i64).collect();
    Tensor::new(&all[..]).unwrap().reshape([batch, length]).unwrap()
}

/// Exports a module whose first size is free and compares it on another size.
fn with_batch(name: &str, model: &impl Forward, x: &Tensor, other: &Tensor) -> String {
    model.eval();
    let exported =
        Export::of(model).input("x", x).dynamic(0, "batch").run(model).unwrap_or_else(|e| panic!("{name}: {e}"));
    check(&exported, name, std::slice::from_ref(other), &[no_grad(|| model.forward(other)).unwrap()]);
    exported.text().unwrap()
}

#[test]
fn networks_of_layers_are_exported() {
    manual_seed(0);
    let dense = Sequential::new()
        .append(Linear::new(6, 8).unwrap())
        .append(LayerNorm::new(8).unwrap())
        .append(GELU::default())
        .append(Dropout::new(0.5).unwrap())
        .append(Linear::new(8, 3).unwrap())
        .append(Softmax::new(-1));
    let text = with_batch("dense", &dense, &Tensor::randn([1, 6]).unwrap(), &Tensor::randn([5, 6]).unwrap());
    assert!(text.contains("def forward(x: float32[batch, 6]):"), "{text}");
    assert!(text.contains("nn.functional.linear(x, weight(\"0.weight\"), weight(\"0.bias\"))"), "{text}");
    assert!(text.contains("nn.functional.layer_norm("), "{text}");
    assert!(!text.contains("dropout"), "{text}");

    let images = Sequential::new()
        .append(Conv2d::builder(3, 8, 3).padding(1).build().unwrap())
        .append(BatchNorm2d::new(8).unwrap())
        .append(ReLU)
        .append(MaxPool2d::new(2))
        .append(Conv2d::builder(8, 8, 3).groups(2).stride(2).build().unwrap())
        .append(SiLU)
        .append(AdaptiveAvgPool2d::new(2))
        .append(Flatten::default())
        .append(Linear::new(32, 4).unwrap());
    // Running statistics other than the initial ones.
    images.forward(&Tensor::randn([4, 3, 16, 16]).unwrap()).unwrap();
    let text =
        with_batch("images", &images, &Tensor::randn([2, 3, 16, 16]).unwrap(), &Tensor::randn([3, 3, 16, 16]).unwrap());
    assert!(text.contains("weight(\"1.running_mean\")"), "{text}");
    assert!(text.contains("torch.reshape(v7, [torch.size(v7, 0), 32])") || text.contains("torch.size("), "{text}");
}

#[test]
fn models_are_exported_with_free_sizes() {
    manual_seed(1);
    let gpt = models::Gpt::builder(23).n_layer(2).n_head(2).n_embd(8).block_size(16).tie_weights(true).build().unwrap();
    let llama = models::Llama::builder(23)
        .hidden_size(16)
        .intermediate_size(24)
        .num_hidden_layers(2)
        .num_attention_heads(4)
        .num_key_value_heads(2)
        .max_position_embeddings(32)
        .build()
        .unwrap();
    fn sequence(name: &str, model: &impl Forward) {
        model.eval();
        let exported =
            Export::of(model).input("tokens", &tokens(2, 5)).dynamic(0, "batch").dynamic(1, "length").run(model);
        let exported = exported.unwrap_or_else(|e| panic!("{name}: {e}"));
        for (batch, length) in [(1, 9), (4, 2), (3, 16)] {
            let x = tokens(batch, length);
            check(&exported, name, std::slice::from_ref(&x), &[no_grad(|| model.forward(&x)).unwrap()]);
        }
        // A size of the program is a size, not a number of the example.
        let wrong = exported.forward(&[Tensor::zeros([2, 5]).unwrap().into()]).err().unwrap().to_string();
        assert!(wrong.contains("takes int64"), "{wrong}");
    }
    sequence("gpt", &gpt);
    sequence("llama", &llama);

    let resnet = models::ResNet::builder([1, 1, 1, 1]).width(4).num_classes(5).large_images(false).build().unwrap();
    resnet.eval();
    let x = Tensor::randn([2, 3, 16, 16]).unwrap();
    let exported =
        Export::of(&resnet).input("x", &x).dynamic(0, "n").dynamic(2, "h").dynamic(3, "w").run(&resnet).unwrap();
    let other = Tensor::randn([1, 3, 24, 20]).unwrap();
    check(&exported, "resnet", std::slice::from_ref(&other), &[no_grad(|| resnet.forward(&other)).unwrap()]);
}

#[test]
fn transformer_layers_are_exported() {
    manual_seed(2);
    let layer = TransformerEncoderLayer::builder(8, 2).dim_feedforward(16).batch_first(true).build().unwrap();
    layer.eval();
    let x = Tensor::randn([2, 6, 8]).unwrap();
    let exported = Export::of(&layer).input("x", &x).dynamic(0, "batch").dynamic(1, "length").run(&layer).unwrap();
    let other = Tensor::randn([3, 4, 8]).unwrap();
    check(&exported, "encoder", std::slice::from_ref(&other), &[no_grad(|| layer.forward(&other)).unwrap()]);

    // Two inputs, one of them free in its length; the mask is made of the length.
    let decoder =
        TransformerDecoderLayer::builder(8, 2).dim_feedforward(16).batch_first(true).norm_first(true).build().unwrap();
    decoder.eval();
    let run = |x: &[Tensor]| -> Result<Tensor> {
        let mask = Transformer::generate_square_subsequent_mask(x[0].size(1)?, DType::F32)?;
        decoder.forward_with(&x[0], &x[1], &DecoderMasks::default().tgt_mask(&mask))
    };
    let (target, memory) = (Tensor::randn([2, 5, 8]).unwrap(), Tensor::randn([2, 3, 8]).unwrap());
    let exported =
        Export::of(&decoder).input("target", &target).dynamic(1, "length").input("memory", &memory).with(run).unwrap();
    let (target, memory) = (Tensor::randn([2, 7, 8]).unwrap(), Tensor::randn([2, 3, 8]).unwrap());
    let expected = no_grad(|| run(&[target.clone(), memory.clone()])).unwrap();
    check(&exported, "decoder", &[target, memory], &[expected]);
}

#[test]
fn functions_of_several_ops_are_exported() {
    let net = Linear::new(4, 4).unwrap();
    type Function = fn(&Linear, &Tensor) -> Result<(Tensor, Tensor)>;
    let all: [(&str, Function); 8] = [
        ("views", |net, x| {
            let y = net.forward(x)?.permute([1, 0])?.unsqueeze(0)?;
            let parts = y.chunk(2, 1)?;
            Ok((cat(&[&parts[1], &parts[0]], 1)?.squeeze(0)?.t()?, y.i((0, 1.., ..))?.contiguous()?))
        }),
        ("numbers", |_, x| {
            let y = x.rsub(1.0)?.add(&x.abs()?.add(1)?.rdiv(2.0)?)?.pow(3)?.maximum(0.1)?;
            Ok((y.clamp(-1.0, 1.5)?, where_(&x.gt(0)?, x, -1.0)?.masked_fill(&x.lt(-1)?, 7.0)?))
        }),
        ("in place", |net, x| {
            let out = Tensor::zeros([3, 4])?;
            let sums = net.forward(&x.mul(2.0)?)?;
            sums.relu_()?.add_(1.0)?;
            out.narrow(0, 0, 1)?.copy_(&sums.sum(0)?)?;
            out.select(0, 1)?.fill_(2.0)?;
            Ok((out, sums))
        }),
        ("reductions", |_, x| {
            let (values, _) = x.max(1)?;
            Ok((values.add(&x.var_dims([1], 0.0, false)?)?, x.mean_dims([0, 1], true)?.sub(&x.logsumexp(.., true)?)?))
        }),
        ("indices", |_, x| {
            let picked = x.index_select(1, &Tensor::new([3i64, 0])?)?;
            Ok((picked.gather(1, &x.argmax_dim(1, true)?.remainder(2)?)?, x.topk(2, 1, true)?.0.cumsum(1)?))
        }),
        ("constants", |_, x| {
            let n = x.size(0)?;
            let rows = Tensor::arange(0, n as i64, 1)?.to_dtype(DType::F32)?.unsqueeze(1)?;
            Ok((
                x.add(&rows)?.mul(&Tensor::new([1.0f32, 2.0, 3.0, 4.0])?)?,
                Tensor::ones([n, 2])?.add(&x.narrow(1, 0, 2)?)?,
            ))
        }),
        ("padded", |_, x| {
            let y = x.pad(&[1, 2], PadMode::Constant(0.5.into()))?.unsqueeze(0)?.pad(&[1, 1], PadMode::Reflect)?;
            Ok((y.tril(1)?.flip([2])?, y.squeeze(0)?.to_dtype(DType::F64)?.softmax(0)?))
        }),
        ("losses", |net, x| {
            let (a, b) = (net.forward(x)?, x.sigmoid()?);
            let reduction = rushlight_tensor::Reduction::Mean;
            Ok((a.mse_loss(&b, reduction)?, a.binary_cross_entropy_with_logits(&b, None, None, reduction)?))
        }),
    ];
    manual_seed(3);
    for (name, f) in all {
        let x = Tensor::randn([2, 4]).unwrap();
        let run = |x: &[Tensor]| f(&net, &x[0]);
        let exported =
            Export::of(&net).input("x", &x).dynamic(0, "n").with(run).unwrap_or_else(|e| panic!("{name}: {e}"));
        for n in [2, 6, 1] {
            if n == 1 && (name == "padded" || name == "reductions") {
                continue;
            }
            let x = Tensor::randn([n, 4]).unwrap();
            let (a, b) = no_grad(|| f(&net, &x)).unwrap();
            check(&exported, name, &[x], &[a, b]);
        }
    }
}

#[test]
fn layers_that_are_one_op_are_exported() {
    manual_seed(4);
    let lstm = LSTM::builder(4, 6).batch_first(true).num_layers(2).bidirectional(true).build().unwrap();
    let gru = GRU::new(4, 5).unwrap();
    let attention = MultiheadAttention::builder(4, 2).batch_first(true).build().unwrap();
    type Layer<'a> = (&'a str, &'a dyn Module, &'a dyn Fn(&Tensor) -> Result<Vec<Tensor>>);
    let layers: [Layer; 3] = [
        ("lstm", &lstm, &|x| lstm.forward(x, None).map(|(y, (h, c))| vec![y, h, c])),
        ("gru", &gru, &|x| gru.forward(&x.transpose(0, 1)?, None).map(|(y, h)| vec![y, h])),
        ("attention", &attention, &|x| {
            let (y, weights) = attention.forward(x, x, x, &Default::default())?;
            Ok([Some(y), weights].into_iter().flatten().collect())
        }),
    ];
    for (name, module, run) in layers {
        let x = Tensor::randn([2, 5, 4]).unwrap();
        let export = Export::of(module).input("x", &x).dynamic(0, "batch").dynamic(1, "length");
        let exported = export.with(|x| run(&x[0])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let other = Tensor::randn([3, 8, 4]).unwrap();
        check(&exported, name, std::slice::from_ref(&other), &no_grad(|| run(&other)).unwrap());
        let text = exported.text().unwrap();
        assert!(name == "attention" || text.contains(&format!("torch.{name}(")), "{text}");
    }
    // Spatial layers on a free batch.
    let x = |shape: &[usize]| Tensor::randn(shape).unwrap();
    let layers: [(&str, Box<dyn Fn(&Tensor) -> Result<Tensor>>, &[usize]); 8] = [
        ("upsample", Box::new(|x| Upsample::new().scale_factor([2.0]).forward(x)), &[3, 4, 4]),
        ("shuffle", Box::new(|x| PixelShuffle::new(2).forward(x)), &[4, 3, 3]),
        ("instance", Box::new(|x| x.instance_norm(&Default::default())), &[3, 4, 4]),
        ("group", Box::new(|x| x.group_norm(2, None, None, 1e-5)), &[4, 3]),
        (
            "transpose",
            Box::new(|x| x.conv_transpose2d(&Tensor::ones([3, 2, 2, 2])?, None, Default::default())),
            &[3, 4, 4],
        ),
        ("volume", Box::new(|x| x.avg_pool3d(2)?.max_pool3d(2)), &[2, 4, 4, 4]),
        ("one hot", Box::new(|x| x.argmax_dim(1, false)?.one_hot(Some(4))), &[4]),
        ("unfold", Box::new(|x| Unfold::new(2).forward(x)), &[3, 4, 4]),
    ];
    for (name, run, shape) in layers {
        let example = x(&[&[2], shape].concat());
        let export = Export::of(&gru).input("x", &example).dynamic(0, "batch");
        let exported = export.with(|x| run(&x[0])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let other = x(&[&[5], shape].concat());
        check(&exported, name, std::slice::from_ref(&other), &[no_grad(|| run(&other)).unwrap()]);
    }
}

#[test]
fn fixed_sizes_are_checked() {
    let net = Linear::new(4, 2).unwrap();
    let model = export(&net, &Tensor::zeros([3, 4]).unwrap()).unwrap();
    assert_eq!(model.parameter_names(), ["weight", "bias"]);
    let error = model.forward(&[Tensor::zeros([2, 4]).unwrap().into()]).err().unwrap().to_string();
    assert!(error.contains("'input': dimension 0 ('3') must be 3, got 2"), "{error}");
}

#[test]
fn what_programs_cannot_hold_is_refused() {
    let net = Sequential::from((Linear::new(4, 4).unwrap(), BatchNorm1d::new(4).unwrap()));
    let x = Tensor::randn([3, 4]).unwrap();
    let refused = |f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let export = Export::of(&net).input("x", &x).dynamic(0, "n");
        export.with(|x| f(&x[0])).err().map(|e| e.to_string()).unwrap_or_default()
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&Tensor) -> Result<Tensor>);
    let cases: [Case; 9] = [
        ("'1.running_mean' in place; switch it to evaluation", &|x| net.forward(x)),
        ("reads values that depend on its inputs", &|x| x.mul(x.sum(..)?.item::<f64>()?)),
        ("draws random numbers", &|x| x.add(&Tensor::randn([4])?)),
        ("an op that programs have no name for", &|x| Ok(x.kthvalue(1, 1, false)?.0)),
        ("such as as_strided", &|x| x.as_strided(&[2], &[1], 0)?.exp()),
        ("which op runs", &|x| if x.size(0)? > 4 { x.exp() } else { x.sin() }),
        ("the number of ops depends on the sizes n", &|x| (0..x.size(0)?).try_fold(x.clone(), |y, _| y.exp())),
        ("an argument of torch.mul", &|x| x.mul((x.size(0)? as f64).sqrt())),
        ("that is made without the inputs", &|x| {
            let all: Vec<f64> = (0..x.size(0)?).map(|i| (i * i) as f64 + 0.5).collect();
            x.mul(&Tensor::from_iter(all)?.unsqueeze(1)?)
        }),
    ];
    for (message, f) in cases {
        let error = refused(f);
        assert!(error.contains(message), "{message}: {error}");
    }
    // A tensor of the example's values that the model keeps is no constant.
    let kept = std::sync::OnceLock::new();
    let keeping =
        Export::of(&net).input("x", &x).with(|x| x[0].add(kept.get_or_init(|| x[0].detach().copy().unwrap())));
    assert!(keeping.err().unwrap().to_string().contains("differ from the model's"));
    let names = |name: &str| Export::of(&net).input(name, &x).run(&net).err().unwrap().to_string();
    assert!(names("v0").contains("is no name for an input"));
    assert!(names("a b").contains("is no name for an input"));
    let error = Export::of(&net).input("x", &x).dynamic(2, "n").run(&net).err().unwrap().to_string();
    assert!(error.contains("has no such dimension"), "{error}");
    let error = Export::of(&net).input("x", &x).input("y", &x).run(&net).err().unwrap().to_string();
    assert!(error.contains("takes one input, 2 were given"), "{error}");
}

/// PyTorch's weights and answers; C++ and Python run the same file. `RUSHLIGHT_WRITE=1` writes it anew.
#[test]
fn a_network_of_rust_is_pytorchs_everywhere() {
    let folder = crate::fixtures().join("../rust");
    let answers = rushlight_io::pt::load(folder.join("net.pt")).unwrap();
    let net = Sequential::new()
        .append(Conv2d::builder(3, 8, 3).padding(1).build().unwrap())
        .append(BatchNorm2d::new(8).unwrap())
        .append(ReLU)
        .append(MaxPool2d::new(2))
        .append(Flatten::default())
        .append(Linear::new(32, 6).unwrap())
        .append(GELU::default())
        .append(LayerNorm::new(6).unwrap())
        .append(Linear::new(6, 4).unwrap())
        .append(Softmax::new(-1));
    net.load_state_dict(&answers.get("state").unwrap().to_state_dict().unwrap()).unwrap();
    net.eval();
    let x = answers.get("input").unwrap().as_tensor().unwrap().clone();
    let wanted = answers.get("outputs").unwrap().as_list().unwrap()[0].as_tensor().unwrap().clone();
    // The example has another number of images than PyTorch's.
    let example = x.narrow(0, 0, 2).unwrap();
    let exported = Export::of(&net).input("x", &example).dynamic(0, "batch").run(&net).unwrap();
    check(&exported, "pytorch", std::slice::from_ref(&x), std::slice::from_ref(&wanted));
    let path = folder.join("net.rlm");
    if std::env::var_os("RUSHLIGHT_WRITE").is_some() {
        exported.save(&path).unwrap();
    }
    let file = Model::load(&path).unwrap();
    assert_eq!(file.text().unwrap(), exported.text().unwrap());
    check(&file, "file", &[x], &[wanted]);
}
