//! The file that `rushlight plan --write` makes: the configuration of a job, which the Trainer and DeepSpeed's front
//! read.

use super::estimate::{Estimate, Job, Recompute};
use super::memory::Precision;
use rushlight_core::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The variable by which `rushlight run --plan` passes a file on to the ranks.
pub const VARIABLE: &str = "RUSHLIGHT_PLAN";

/// How a job trains: DeepSpeed's keys, and a section `plan` for what these do not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Sequences of a rank's microbatch.
    pub microbatch: usize,
    /// Microbatches whose gradients are accumulated for a step.
    pub microbatches: usize,
    /// ZeRO's stage: 0 to 3.
    pub zero: usize,
    /// Whether weights, gradients and moments are in the host's memory.
    pub offload: bool,
    /// The dtype of products and activations.
    pub precision: Precision,
    /// The model's name.
    pub model: String,
    /// Ranks in all.
    pub devices: usize,
    /// Data parallel ranks.
    pub data: usize,
    /// Ranks that split tensors.
    pub tensor: usize,
    /// Stages of the pipeline.
    pub pipeline: usize,
    /// Whether blocks are computed again in the backward pass.
    pub recompute: bool,
}

impl Configuration {
    /// That of an estimate.
    pub fn of(job: &Job, one: &Estimate) -> Self {
        let s = &one.strategy;
        Self {
            microbatch: s.microbatch,
            microbatches: one.microbatches,
            zero: s.zero,
            offload: s.offload,
            precision: job.precision,
            model: job.model.name.into(),
            devices: job.devices,
            data: s.data,
            tensor: s.tensor,
            pipeline: s.pipeline,
            recompute: s.recompute == Recompute::Full,
        }
    }

    /// Reads a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::io(format!("plan: cannot read '{}': {e}", path.display())))?;
        Self::from_json(&text).map_err(|e| e.within(&path.display().to_string()))
    }

    /// The file that `rushlight run --plan` names, if it does.
    pub fn of_launcher() -> Result<Option<Self>> {
        match std::env::var_os(VARIABLE) {
            Some(path) if !path.is_empty() => Self::load(path).map(Some).map_err(|e| e.within(VARIABLE)),
            _ => Ok(None),
        }
    }

    /// Reads what [`Self::to_json`] writes. Other keys, which `deepspeed.initialize` may know, are refused: nothing of
    /// a plan is left aside.
    ///
    /// ```
    /// # use rushlight_dist::plan::Configuration;
    /// let text = r#"{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    ///     "zero_optimization": {"stage": 3}, "plan": {"devices": 8}}"#;
    /// let plan = Configuration::from_json(text)?;
    /// assert_eq!((plan.zero, plan.data, plan.microbatches), (3, 8, 4));
    /// assert!(Configuration::from_json(r#"{"train_micro_batch_size_per_gpu": 2, "optimizer": {}}"#).is_err());
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let found: Value =
            serde_json::from_str(text).map_err(|e| Error::value(format!("plan: this is no JSON: {e}")))?;
        let top = section("", &found, &TOP)?;
        let part = |name: &str, known: &[&str]| match top.get(name) {
            Some(value) => section(name, value, known),
            None => Ok(Map::new()),
        };
        let (zero, half) = (part("zero_optimization", &ZERO)?, part("bf16", &["enabled"])?);
        let plan = part("plan", &["model", "devices", "mesh", "pipeline_schedule", "activation_checkpointing"])?;
        let mesh = plan.get("mesh").map_or(Ok(Map::new()), |value| section("plan.mesh", value, &["pp", "dp", "tp"]))?;
        let mut offload = false;
        for name in &ZERO[1..] {
            let Some(value) = zero.get(*name) else { continue };
            match section(name, value, &["device"])?.get("device").and_then(Value::as_str) {
                Some("cpu") => offload = true,
                Some("none") => {}
                _ => return Err(Error::value(format!("plan: '{name}.device' should be 'cpu' or 'none'"))),
            }
        }
        let (tensor, pipeline) = (count("tp", mesh.get("tp"), Some(1))?, count("pp", mesh.get("pp"), Some(1))?);
        let devices = plan.get("devices").map(|value| count("devices", Some(value), None)).transpose()?;
        let data = count("dp", mesh.get("dp"), devices.map(|n| n / (tensor * pipeline)).or(Some(1)))?;
        let devices = devices.unwrap_or(data * tensor * pipeline);
        if data * tensor * pipeline != devices {
            return Err(Error::value(format!("plan: {data} x {tensor} x {pipeline} ranks are not {devices} devices")));
        }
        let stage = zero.get("stage").map_or(Some(0), Value::as_u64).filter(|stage| *stage <= 3);
        let stage = stage.ok_or_else(|| Error::value("plan: 'zero_optimization.stage' should be 0, 1, 2 or 3"))?;
        if offload && stage != 3 {
            return Err(Error::value(format!("plan: offloading is of ZeRO's stage 3, not {stage}")));
        }
        let flag = |name: &str, value: Option<&Value>| match value {
            None => Ok(false),
            Some(value) => {
                value.as_bool().ok_or_else(|| Error::value(format!("plan: '{name}' should be true or false")))
            }
        };
        Ok(Self {
            microbatch: count(TOP[0], top.get(TOP[0]), None)?,
            microbatches: count(TOP[1], top.get(TOP[1]), Some(1))?,
            zero: stage as usize,
            offload,
            precision: if flag("bf16.enabled", half.get("enabled"))? { Precision::Bf16 } else { Precision::F32 },
            model: plan.get("model").and_then(Value::as_str).unwrap_or("own").into(),
            devices,
            data,
            tensor,
            pipeline,
            recompute: flag("activation_checkpointing", plan.get("activation_checkpointing"))?,
        })
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let mut zero = json!({"stage": self.zero});
        if self.offload {
            ZERO[1..].iter().for_each(|name| zero[*name] = json!({"device": "cpu"}));
        }
        let text = json!({
            (TOP[0]): self.microbatch,
            (TOP[1]): self.microbatches,
            "zero_optimization": zero,
            "bf16": {"enabled": self.precision == Precision::Bf16},
            "plan": {
                "model": self.model,
                "devices": self.devices,
                "mesh": {"pp": self.pipeline, "dp": self.data, "tp": self.tensor},
                "pipeline_schedule": (self.pipeline > 1).then_some("1F1B"),
                "activation_checkpointing": self.recompute,
            },
        });
        format!("{text:#}\n")
    }

    /// An error if a job of `ranks` ranks, all of them data parallel, cannot follow the plan.
    pub fn check_data_parallel(&self, ranks: usize) -> Result<()> {
        if (self.tensor, self.pipeline) != (1, 1) {
            return Err(Error::unsupported(format!(
                "plan: it splits tensors by {} and stages by {}; the Trainer is data parallel: plan with `rushlight plan \
                 --data-parallel`, or split the model by `pipeline` and DTensors yourself",
                self.tensor, self.pipeline
            )));
        }
        if self.devices != ranks {
            return Err(Error::value(format!("plan: it is for {} devices, the job has {ranks} ranks", self.devices)));
        }
        Ok(())
    }
}

const TOP: [&str; 5] =
    ["train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization", "bf16", "plan"];
const ZERO: [&str; 3] = ["stage", "offload_optimizer", "offload_param"];

/// An object with known keys alone.
fn section(name: &str, value: &Value, known: &[&str]) -> Result<Map<String, Value>> {
    let shown = if name.is_empty() { "the file" } else { name };
    let found = value.as_object().ok_or_else(|| Error::value(format!("plan: {shown} should be an object")))?;
    match found.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(Error::value(format!("plan: {shown} has '{key}'; known are {}", known.join(", ")))),
        None => Ok(found.clone()),
    }
}

fn count(name: &str, value: Option<&Value>, default: Option<usize>) -> Result<usize> {
    let found = match value {
        Some(value) => value.as_u64().and_then(|n| usize::try_from(n).ok()),
        None => default,
    };
    found.filter(|n| (1..=1 << 32).contains(n)).ok_or_else(|| match value {
        Some(value) => Error::value(format!("plan: '{name}' should be a positive integer, not {value}")),
        None => Error::value(format!("plan: '{name}' is missing")),
    })
}
