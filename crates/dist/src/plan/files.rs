//! The user's own models and machines: Hugging Face's `config.json`, and a file of constants.

use super::machine::Machine;
use super::model::Model;
use rushlight_core::{Error, Result};
use serde_json::{Map, Value};

/// Model types whose feed-forward layer has a gate, and others; with those of the latter whose output layer is the
/// embedding unless the file says otherwise.
const GATED: &[&str] = &[
    "cohere",
    "gemma",
    "gemma2",
    "granite",
    "internlm2",
    "llama",
    "mistral",
    "olmo",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "stablelm",
];
const PLAIN: &[&str] =
    &["bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi", "starcoder2"];
const TIED: &[&str] = &["bloom", "cohere", "falcon", "gemma", "gemma2", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt"];

fn object(text: &str, what: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(found)) => Ok(found),
        Ok(_) => Err(Error::value(format!("{what}: an object is expected"))),
        Err(e) => Err(Error::value(format!("{what} is no JSON: {e}"))),
    }
}

/// The first of some keys, as a positive integer; `None` if there is none, or null.
fn size(found: &Map<String, Value>, names: &[&str]) -> Result<Option<usize>> {
    let Some((name, value)) =
        names.iter().find_map(|name| found.get(*name).filter(|v| !v.is_null()).map(|v| (*name, v)))
    else {
        return Ok(None);
    };
    match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n > 0 && n <= 1 << 40 => Ok(Some(n)),
        _ => Err(Error::value(format!("config.json: '{name}' should be a positive integer, not {value}"))),
    }
}

impl Model {
    /// The model of a Hugging Face `config.json`. Sequences have the length that the model knows, 8,192 at most.
    ///
    /// ```
    /// # use rushlight_dist::plan::Model;
    /// let text = r#"{"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192,
    ///     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": true,
    ///     "max_position_embeddings": 131072}"#;
    /// let model = Model::from_config(text)?;
    /// assert_eq!((model.layers, model.sequence), (16, 8192));
    /// assert!((model.parameters() / 1.236e9 - 1.0).abs() < 0.01);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn from_config(text: &str) -> Result<Self> {
        let found = object(text, "config.json")?;
        let kind = found.get("model_type").and_then(Value::as_str).unwrap_or("");
        let gated = GATED.contains(&kind);
        if !gated && !PLAIN.contains(&kind) {
            return Err(Error::unsupported(format!(
                "config.json: the model type '{kind}' is not among {}, {}; give the sizes by --layers, --hidden, --heads, …",
                GATED.join(", "),
                PLAIN.join(", ")
            )));
        }
        if let Some(name) =
            ["num_experts", "num_local_experts", "n_routed_experts"].iter().find(|n| found.contains_key(**n))
        {
            return Err(Error::unsupported(format!("config.json: '{name}': mixtures of experts cannot be planned")));
        }
        let need = |names: &[&str]| {
            size(&found, names)?.ok_or_else(|| Error::value(format!("config.json: '{}' is missing", names[0])))
        };
        let layers = need(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?;
        let hidden = need(&["hidden_size", "n_embd", "d_model"])?;
        let heads = need(&["num_attention_heads", "n_head", "num_heads", "n_heads"])?;
        let vocabulary = need(&["vocab_size"])?;
        if size(&found, &["head_dim"])?.is_some_and(|head| head * heads != hidden) {
            return Err(Error::unsupported("config.json: 'head_dim' times the heads must be 'hidden_size'"));
        }
        let model = Self {
            name: "own",
            layers,
            hidden,
            ffn: size(&found, &["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"])?.unwrap_or(4 * hidden),
            gated,
            tied: found.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(TIED.contains(&kind)),
            heads,
            kv_heads: size(&found, &["num_key_value_heads"])?.unwrap_or(heads),
            vocabulary,
            sequence: size(&found, &["max_position_embeddings", "n_positions", "max_seq_len"])?
                .unwrap_or(2048)
                .min(8192),
        };
        model.check()
    }

    /// This model, if its heads divide as they must.
    pub fn check(self) -> Result<Self> {
        let Self { layers, hidden, ffn, heads, kv_heads, vocabulary, sequence, .. } = self;
        if [layers, hidden, ffn, heads, kv_heads, vocabulary, sequence].contains(&0) {
            return Err(Error::value("plan: a size of the model is zero"));
        }
        if !hidden.is_multiple_of(heads) || !heads.is_multiple_of(kv_heads) {
            return Err(Error::value(format!(
                "plan: a width of {hidden}, {heads} heads and {kv_heads} of keys and values do not divide"
            )));
        }
        Ok(self)
    }
}

impl Machine {
    /// A machine of a file of constants: an object with `devices` of a node, `peak_tflops` of bf16 products, `reach`
    /// (the share of the peak that large products reach), `memory_gb` of a device, `inside_gb_per_s` and
    /// `between_gb_per_s` that a device sends within a node and between nodes, `latency_us` of a message and
    /// `host_gb_per_s` between a device and the host's memory. `like` names a known machine, which has what is missing.
    ///
    /// ```
    /// # use rushlight_dist::plan::Machine;
    /// let machine = Machine::from_json(r#"{"like": "h100", "devices": 4, "memory_gb": 94, "reach": 0.5}"#)?;
    /// assert_eq!((machine.devices, machine.memory, machine.peak), (4, 94e9, 989e12));
    /// assert!(Machine::from_json(r#"{"devices": 4}"#).is_err());
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let found = object(text, "machine")?;
        let like = match found.get("like") {
            None => None,
            Some(name) => {
                let known = name.as_str().and_then(Machine::named);
                Some(known.ok_or_else(|| Error::value(format!("machine: 'like' names no known machine: {name}")))?)
            }
        };
        let known = [
            "like",
            "name",
            "devices",
            "peak_tflops",
            "reach",
            "memory_gb",
            "inside_gb_per_s",
            "between_gb_per_s",
            "latency_us",
            "host_gb_per_s",
        ];
        if let Some(key) = found.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(Error::value(format!("machine: there is no '{key}'; the keys are {}", known.join(", "))));
        }
        let number = |name: &str, unit: f64, of: fn(&Machine) -> f64| match (found.get(name), &like) {
            (Some(value), _) => match value.as_f64() {
                Some(n) if n.is_finite() && n > 0.0 => Ok(n * unit),
                _ => Err(Error::value(format!("machine: '{name}' should be a positive number, not {value}"))),
            },
            (None, Some(like)) => Ok(of(like)),
            (None, None) => Err(Error::value(format!("machine: '{name}' is missing, and there is no 'like'"))),
        };
        let devices = number("devices", 1.0, |m| m.devices as f64)?;
        let reach = number("reach", 1.0, |m| m.reach)?;
        if devices.fract() != 0.0 || devices > 65536.0 || reach > 1.0 {
            return Err(Error::value("machine: 'devices' should be a whole number and 'reach' at most 1"));
        }
        Ok(Self {
            name: "own",
            device: "the user's machine",
            devices: devices as usize,
            peak: number("peak_tflops", 1e12, |m| m.peak)?,
            reach,
            memory: number("memory_gb", 1e9, |m| m.memory)?,
            inside: number("inside_gb_per_s", 1e9, |m| m.inside)?,
            between: number("between_gb_per_s", 1e9, |m| m.between)?,
            latency: number("latency_us", 1e-6, |m| m.latency)?,
            host: number("host_gb_per_s", 1e9, |m| m.host)?,
        })
    }
}
