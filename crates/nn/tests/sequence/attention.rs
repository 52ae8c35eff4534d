use crate::goldens::{Config, Goldens, check, device};
use rushlight_core::DType;
use rushlight_nn::{Module, MultiheadAttention, MultiheadAttentionOptions};
use rushlight_tensor::Tensor;

#[test]
fn multihead_attention_is_pytorchs() {
    let goldens = Goldens::read("attention");
    for case in &goldens.cases {
        let config = Config::of(case);
        let module = MultiheadAttention::builder(config.required("embed_dim"), config.required("num_heads"))
            .bias(config.flag("bias", true))
            .add_bias_kv(config.flag("add_bias_kv", false))
            .add_zero_attn(config.flag("add_zero_attn", false))
            .kdim(config.size("kdim"))
            .vdim(config.size("vdim"))
            .batch_first(config.flag("batch_first", false))
            .dtype(config.dtype())
            .build()
            .unwrap()
            .to(device())
            .unwrap();
        let flag = |name: &str, default: bool| case["kwargs"][name].as_bool().unwrap_or(default);
        let options = MultiheadAttentionOptions::default()
            .attn_mask(goldens.keyword(case, "attn_mask"))
            .key_padding_mask(goldens.keyword(case, "key_padding_mask"))
            .is_causal(flag("is_causal", false))
            .need_weights(flag("need_weights", true))
            .average_attn_weights(flag("average_attn_weights", true));
        check(&goldens, case, &module, |x| {
            let (out, weights) = module.forward(&x[0], &x[1], &x[2], &options).unwrap();
            vec![Some(out), weights]
        });
    }
}

#[test]
fn causal_without_a_mask_is_causal_with_one() {
    let x = Tensor::randn_with([2, 4, 8], DType::F64).unwrap();
    let mask = Tensor::ones_with([4, 4], DType::Bool).unwrap().triu(1).unwrap();
    let padding = Tensor::new([[false, false, false, true], [false; 4]]).unwrap();
    for extra in [false, true] {
        let module =
            MultiheadAttention::builder(8, 2).batch_first(true).add_bias_kv(extra).dtype(DType::F64).build().unwrap();
        for need_weights in [false, true] {
            for padding in [None, Some(&padding)] {
                let options = MultiheadAttentionOptions::default().need_weights(need_weights).key_padding_mask(padding);
                let a = module.forward(&x, &x, &x, &options.is_causal(true)).unwrap().0;
                let b = module.forward(&x, &x, &x, &options.attn_mask(&mask)).unwrap().0;
                assert!(a.allclose(&b, 1e-9, 1e-12).unwrap());
            }
        }
    }
}

#[test]
fn dropout_is_for_training_only() {
    let module = MultiheadAttention::builder(8, 2).dropout(0.5).build().unwrap();
    let x = Tensor::randn([5, 2, 8]).unwrap();
    for need_weights in [false, true] {
        let options = MultiheadAttentionOptions::default().need_weights(need_weights);
        let run = || module.forward(&x, &x, &x, &options).unwrap().0;
        module.train();
        assert!(!run().equal(&run()).unwrap());
        module.eval();
        assert!(run().equal(&run()).unwrap());
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert!(MultiheadAttention::new(8, 3).is_err());
    assert!(MultiheadAttention::new(8, 0).is_err());
    assert!(MultiheadAttention::new(0, 1).is_err());
    assert!(MultiheadAttention::builder(8, 2).dropout(1.5).build().is_err());
    let module = MultiheadAttention::builder(8, 2).batch_first(true).build().unwrap();
    let ones = |shape: &[usize]| Tensor::ones(shape).unwrap();
    let x = ones(&[2, 3, 8]);
    let plain = MultiheadAttentionOptions::default();
    for (q, k, v) in [
        (&x, &ones(&[3, 3, 8]), &ones(&[3, 3, 8])),
        (&x, &ones(&[2, 3, 7]), &x),
        (&x, &ones(&[2, 4, 8]), &x),
        (&x, &ones(&[3, 8]), &ones(&[3, 8])),
        (&ones(&[8]), &x, &x),
    ] {
        assert!(module.forward(q, k, v, &plain).is_err());
    }
    for mask in [ones(&[3, 4]), ones(&[2, 3, 3]), ones(&[3]), Tensor::ones_with([3, 3], DType::I64).unwrap()] {
        assert!(module.forward(&x, &x, &x, &plain.attn_mask(&mask)).is_err());
        assert!(module.forward(&x, &x, &x, &plain.attn_mask(&mask).need_weights(false)).is_err());
    }
    for mask in [ones(&[3, 2]), ones(&[3]), Tensor::ones_with([2, 3], DType::I64).unwrap()] {
        assert!(module.forward(&x, &x, &x, &plain.key_padding_mask(&mask)).is_err());
    }
}
