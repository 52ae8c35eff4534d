use crate::goldens::{Config, Goldens, check, device};
use rushlight_core::DType;
use rushlight_nn::{
    DecoderMasks, EncoderMasks, Forward, LayerNorm, Module, Transformer, TransformerActivation, TransformerDecoder,
    TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, TransformerMasks,
};
use rushlight_tensor::Tensor;

/// The options that all kinds have, from a case.
macro_rules! configured {
    ($builder:expr, $config:expr) => {
        $builder
            .dim_feedforward($config.required("dim_feedforward"))
            .dropout($config.number("dropout", 0.1))
            .activation(match $config.text("activation") {
                "gelu" => TransformerActivation::Gelu,
                _ => TransformerActivation::Relu,
            })
            .layer_norm_eps($config.number("layer_norm_eps", 1e-5))
            .batch_first($config.flag("batch_first", false))
            .norm_first($config.flag("norm_first", false))
            .bias($config.flag("bias", true))
            .dtype($config.dtype())
            .build()
            .unwrap()
            .to(device())
            .unwrap()
    };
}

#[test]
fn transformers_are_pytorchs() {
    let goldens = Goldens::read("transformer");
    for case in &goldens.cases {
        let config = Config::of(case);
        let mask = |name: &str| goldens.keyword(case, name);
        let flag = |name: &str| case["kwargs"][name].as_bool().unwrap_or(false);
        let encoder_masks = EncoderMasks::default()
            .src_mask(mask("src_mask").or(mask("mask")))
            .src_key_padding_mask(mask("src_key_padding_mask"))
            .is_causal(flag("is_causal") || flag("src_is_causal"));
        let decoder_masks = DecoderMasks::default()
            .tgt_mask(mask("tgt_mask"))
            .memory_mask(mask("memory_mask"))
            .tgt_key_padding_mask(mask("tgt_key_padding_mask"))
            .memory_key_padding_mask(mask("memory_key_padding_mask"))
            .tgt_is_causal(flag("tgt_is_causal"))
            .memory_is_causal(flag("memory_is_causal"));
        let (d_model, nhead) = (config.required("d_model"), config.required("nhead"));
        let norm = || {
            config
                .flag("norm", false)
                .then(|| LayerNorm::builder([d_model]).dtype(config.dtype()).build().unwrap().to(device()).unwrap())
        };
        match case["module"].as_str().unwrap() {
            "TransformerEncoderLayer" => {
                let module = configured!(TransformerEncoderLayer::builder(d_model, nhead), config);
                check(&goldens, case, &module, |x| vec![Some(module.forward_with(&x[0], &encoder_masks).unwrap())]);
            }
            "TransformerDecoderLayer" => {
                let module = configured!(TransformerDecoderLayer::builder(d_model, nhead), config);
                check(&goldens, case, &module, |x| {
                    vec![Some(module.forward_with(&x[0], &x[1], &decoder_masks).unwrap())]
                });
            }
            "TransformerEncoder" => {
                let layer = configured!(TransformerEncoderLayer::builder(d_model, nhead), config);
                let module =
                    TransformerEncoder::builder(layer, config.required("num_layers")).norm(norm()).build().unwrap();
                check(&goldens, case, &module, |x| vec![Some(module.forward_with(&x[0], &encoder_masks).unwrap())]);
            }
            "TransformerDecoder" => {
                let layer = configured!(TransformerDecoderLayer::builder(d_model, nhead), config);
                let module =
                    TransformerDecoder::builder(layer, config.required("num_layers")).norm(norm()).build().unwrap();
                check(&goldens, case, &module, |x| {
                    vec![Some(module.forward_with(&x[0], &x[1], &decoder_masks).unwrap())]
                });
            }
            _ => {
                let module = configured!(
                    Transformer::builder()
                        .d_model(d_model)
                        .nhead(nhead)
                        .num_encoder_layers(config.required("num_encoder_layers"))
                        .num_decoder_layers(config.required("num_decoder_layers")),
                    config
                );
                let masks = TransformerMasks { encoder: encoder_masks, decoder: decoder_masks };
                check(&goldens, case, &module, |x| vec![Some(module.forward_with(&x[0], &x[1], &masks).unwrap())]);
            }
        }
    }
}

#[test]
fn layers_start_equal_and_learn_apart() {
    let layer = TransformerEncoderLayer::builder(8, 2).dim_feedforward(16).dropout(0.0).build().unwrap();
    layer.linear1.weight.tensor().clone().requires_grad_(false).unwrap();
    let encoder = TransformerEncoder::new(layer, 3).unwrap();
    let [first, .., last] = &encoder.layers[..] else { panic!("three layers") };
    assert!(first.linear2.weight.equal(&last.linear2.weight).unwrap());
    assert!(!first.linear2.weight.shares_storage(&last.linear2.weight));
    // A frozen parameter's copies are frozen.
    assert!(!last.linear1.weight.requires_grad());
    encoder.forward(&Tensor::randn([3, 2, 8]).unwrap()).unwrap().sum(..).unwrap().backward().unwrap();
    assert!(first.linear2.weight.grad().is_some() && last.linear2.weight.grad().is_some());
    assert_eq!(encoder.parameters().len(), 3 * 12);
}

#[test]
fn a_transformer_starts_as_pytorchs() {
    let small =
        || Transformer::builder().d_model(8).nhead(2).num_encoder_layers(2).num_decoder_layers(1).dim_feedforward(16);
    let model = small().build().unwrap();
    let [a, b] = &model.encoder.layers[..] else { panic!("two layers") };
    assert!(!a.linear1.weight.equal(&b.linear1.weight).unwrap());
    assert!(a.linear1.bias.as_ref().unwrap().equal(b.linear1.bias.as_ref().unwrap()).unwrap());
    let bound = (6.0f64 / 24.0).sqrt();
    assert!(a.linear1.weight.abs().unwrap().max(..).unwrap().item::<f64>().unwrap() <= bound);
    assert!(model.encoder.norm.is_some() && model.decoder.norm.is_some());

    let layer = TransformerEncoderLayer::builder(8, 2).dim_feedforward(4).build().unwrap();
    let custom = TransformerEncoder::new(layer, 1).unwrap();
    let model = small().custom_encoder(custom).build().unwrap();
    assert_eq!(model.encoder.layers.len(), 1);
    let (src, tgt) = (Tensor::ones([5, 2, 8]).unwrap(), Tensor::ones([3, 2, 8]).unwrap());
    assert_eq!(model.forward(&src, &tgt).unwrap().shape(), [3, 2, 8]);
    assert!(model.forward(&src, &Tensor::ones([3, 3, 8]).unwrap()).is_err());
    assert!(model.forward(&src, &Tensor::ones([3, 8]).unwrap()).is_err());
    assert!(model.forward(&src, &Tensor::ones([3, 2, 7]).unwrap()).is_err());
    assert!(small().nhead(3).build().is_err());
    assert!(small().dropout(-0.1).build().is_err());
}

#[test]
fn the_square_mask_hides_what_comes_later() {
    let mask = Transformer::generate_square_subsequent_mask(3, DType::F64).unwrap();
    let inf = f64::INFINITY;
    assert_eq!(mask.to_vec::<f64>().unwrap(), [0.0, -inf, -inf, 0.0, 0.0, -inf, 0.0, 0.0, 0.0]);
}
