//! Llama and its cache against Hugging Face's (`tests/goldens/llama.py`).

use crate::goldens::{Config, Goldens, close};
use rushlight_core::{DType, Result};
use rushlight_nn::models::{Generate, Gpt, KvCache, Llama};
use rushlight_nn::{Forward, Module, RopeScaling, RotaryEmbedding};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use serde_json::Value;

/// The numbers of `hashed` in `tests/goldens/models.py`.
fn hashed(stream: u32, shape: &[usize]) -> Result<Tensor> {
    let number = |i: u32| {
        let mut h = i.wrapping_mul(2654435761).wrapping_add(stream.wrapping_mul(40503).wrapping_add(12345));
        h ^= h >> 16;
        h = h.wrapping_mul(0x85EBCA6B);
        h ^= h >> 13;
        h = h.wrapping_mul(0xC2B2AE35);
        h ^= h >> 16;
        ((h >> 8) as f64 / (1 << 23) as f64 - 1.0) as f32
    };
    Tensor::from_iter((0..shape.iter().product::<usize>() as u32).map(number))?.reshape(shape)
}

fn scaling(config: &Value) -> Option<RopeScaling> {
    let scaling = &config["rope_scaling"];
    let number = |name: &str| scaling[name].as_f64().expect(name);
    match scaling["rope_type"].as_str()? {
        "linear" => Some(RopeScaling::Linear(number("factor"))),
        "llama3" => Some(RopeScaling::Llama3 {
            factor: number("factor"),
            low_freq_factor: number("low_freq_factor"),
            high_freq_factor: number("high_freq_factor"),
            original_max_position_embeddings: number("original_max_position_embeddings") as usize,
        }),
        other => panic!("rope_type {other}"),
    }
}

fn built(case: &Value) -> Result<Llama> {
    let config = Config::of(case);
    let llama = Llama::builder(config.required("vocab_size"))
        .hidden_size(config.required("hidden_size"))
        .intermediate_size(config.required("intermediate_size"))
        .num_hidden_layers(config.required("num_hidden_layers"))
        .num_attention_heads(config.required("num_attention_heads"))
        .num_key_value_heads(config.size("num_key_value_heads"))
        .head_dim(config.size("head_dim"))
        .max_position_embeddings(config.required("max_position_embeddings"))
        .rms_norm_eps(config.number("rms_norm_eps", 1e-6))
        .rope_theta(config.number("rope_theta", 10000.0))
        .rope_scaling(scaling(&case["config"]))
        .attention_bias(config.flag("attention_bias", false))
        .mlp_bias(config.flag("mlp_bias", false))
        .tie_word_embeddings(config.flag("tie_word_embeddings", false))
        .build()?;
    for (i, (name, p)) in llama.named_parameters().iter().enumerate() {
        let values = (hashed(i as u32, p.shape())? * 0.3 + name.contains("norm")).eval()?;
        no_grad(|| p.copy_(&values).map(|_| ()))?;
    }
    Ok(llama)
}

#[test]
fn llama_computes_and_generates_as_hugging_faces() -> Result<()> {
    let goldens = Goldens::read("../llama");
    assert_eq!(goldens.cases.len(), 4);
    for case in &goldens.cases {
        let name = case["name"].as_str().unwrap();
        let golden = |what: &str| goldens.tensor(&Value::from(format!("{name}.{what}"))).clone();
        let llama = built(case)?;
        let tokens = golden("tokens");
        let logits = llama.forward(&tokens)?;
        close(&logits, &golden("logits"), &format!("{name} logits"));
        (&logits * hashed(1000, logits.shape())?).sum(..)?.backward()?;
        for (parameter, p) in llama.named_parameters() {
            close(
                &p.grad().unwrap(),
                &golden(&format!("grad.{parameter}")),
                &format!("{name} gradient of {parameter}"),
            );
        }
        let wanted = golden("generated").to_vec::<i64>()?;
        for use_cache in [true, false] {
            let options = Generate::new(8).do_sample(false).use_cache(use_cache);
            assert_eq!(llama.generate(&tokens, &options)?.to_vec::<i64>()?, wanted, "{name}, cache {use_cache}");
        }
    }
    Ok(())
}

#[test]
fn caches_change_no_answer() -> Result<()> {
    rushlight_core::rng::manual_seed(3);
    let gpt = Gpt::builder(17).n_layer(2).n_head(2).n_embd(8).block_size(12).build()?;
    let tokens = Tensor::randint(0, 17, [2, 9])?;
    let whole = gpt.forward(&tokens)?;
    no_grad(|| {
        // In parts of one token and of several.
        let (mut cache, mut start) = (KvCache::new(), 0);
        for length in [3, 1, 4, 1] {
            let part = gpt.forward_cached(&tokens.narrow(1, start, length)?, &mut cache)?;
            close(&part, &whole.narrow(1, start, length)?, &format!("tokens {start} and on"));
            start += length as isize;
        }
        assert_eq!(cache.len(), 9);
        let error = gpt.forward_cached(&tokens, &mut cache).unwrap_err();
        assert!(error.to_string().contains("at most 12") && error.to_string().contains("after 9 tokens"), "{error}");
        let other_batch = gpt.forward_cached(&tokens.narrow(0, 0, 1)?.narrow(1, 0, 1)?, &mut cache).unwrap_err();
        assert!(other_batch.to_string().contains("clear it"), "{other_batch}");
        assert_eq!(other_batch.module(), Some("transformer.h.0.attn"));
        cache.clear();
        close(&gpt.forward_cached(&tokens, &mut cache)?, &whole, "after clear");
        // Beyond the longest sequence, with the window of the last tokens.
        let greedy = Generate::new(8).do_sample(false);
        let (a, b) = (gpt.generate(&tokens, &greedy)?, gpt.generate(&tokens, &greedy.clone().use_cache(false))?);
        assert_eq!(a.shape(), [2, 17]);
        assert_eq!(a.to_vec::<i64>()?, b.to_vec::<i64>()?);
        Ok::<(), rushlight_core::Error>(())
    })?;
    let recorded = gpt.forward_cached(&tokens, &mut KvCache::new()).unwrap_err();
    assert!(recorded.to_string().contains("no_grad"), "{recorded}");
    Ok(())
}

#[test]
fn nucleus_sampling_keeps_the_likeliest() -> Result<()> {
    let gpt = Gpt::builder(50).n_layer(1).n_head(2).n_embd(8).block_size(16).build()?;
    let tokens = Tensor::zeros_with([4, 1], DType::I64)?;
    let likeliest = gpt.generate(&tokens, &Generate::new(6).do_sample(false))?;
    // So small a fraction that the first token alone fills it.
    let drawn = gpt.generate(&tokens, &Generate::new(6).top_p(1e-6))?;
    assert_eq!(drawn.to_vec::<i64>()?, likeliest.to_vec::<i64>()?);
    assert_eq!(gpt.generate(&tokens, &Generate::new(6).top_p(0.9).top_k(5))?.shape(), [4, 7]);
    for wrong in [Generate::new(1).top_p(0.0), Generate::new(1).top_p(1.5), Generate::new(1).top_k(0)] {
        assert!(gpt.generate(&tokens, &wrong).is_err());
    }
    Ok(())
}

#[test]
fn rotary_embedding_turns_by_the_distance() -> Result<()> {
    rushlight_core::rng::manual_seed(5);
    for interleaved in [false, true] {
        let rope = RotaryEmbedding::builder(6, 40).interleaved(interleaved).dtype(DType::F64).build()?;
        let (q, k) = (Tensor::randn_with([1, 6], DType::F64)?, Tensor::randn_with([1, 6], DType::F64)?);
        let product = |a: usize, b: usize| (rope.forward(&q, a)? * rope.forward(&k, b)?).sum(..)?.item::<f64>();
        assert!((product(3, 1)? - product(30, 28)?).abs() < 1e-12);
        assert!((product(3, 1)? - product(3, 2)?).abs() > 1e-6);
        assert!(rope.forward(&q, 40).unwrap_err().to_string().contains("exceed the 40"));
        assert!(rope.forward(&q, usize::MAX).is_err());
        assert!(rope.forward(&Tensor::ones([2, 8])?, 0).is_err());
    }
    assert!(RotaryEmbedding::new(7, 4).is_err());
    assert!(RotaryEmbedding::builder(8, 4).scaling(RopeScaling::Linear(0.0)).build().is_err());
    Ok(())
}
