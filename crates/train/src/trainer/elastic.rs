//! A run that continues with another number of processes: its batch and its learning rate.

use rushlight_core::{Error, Result};
use rushlight_tensor::state::Value;

/// What a run does with its batch and its learning rate when it continues with another number of processes.
///
/// Without a policy both stay as the program sets them for one process, so the batch of a step changes with the number
/// of processes and the learning rate does not: the Trainer says so when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElasticBatch {
    /// A step keeps its samples and its learning rate: each process takes more or fewer of them, in batches no larger
    /// than the loader's own, whose gradients are accumulated. Where they do not divide evenly, the step has a few
    /// samples more or fewer.
    Keep,
    /// Each process keeps its batch; the learning rate is multiplied by the ratio of the numbers of processes.
    Scale,
}

/// The variable by which `rushlight run --elastic-batch` passes the policy on.
pub(super) const VARIABLE: &str = "RUSHLIGHT_ELASTIC_BATCH";

impl std::str::FromStr for ElasticBatch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "keep" => Ok(Self::Keep),
            "scale" => Ok(Self::Scale),
            other => Err(Error::value(format!("elastic batch '{other}' should be keep or scale"))),
        }
    }
}

impl ElasticBatch {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Scale => "scale",
        }
    }

    /// The launcher's policy, if there is one.
    pub(super) fn of_launcher() -> Result<Option<Self>> {
        match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => {
                text.parse().map(Some).map_err(|e: Error| e.within(&format!("the variable {VARIABLE}")))
            }
            _ => Ok(None),
        }
    }
}

/// What one process does in an optimizer step, as the program sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Samples of a batch; `None` where a sampler of the user's own decides.
    pub batch_size: Option<usize>,
    /// Batches whose gradients are accumulated.
    pub accumulate: u64,
}

/// The numbers of processes that a run's settings are meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meant {
    /// That of the run's beginning: the samples of a step follow from it.
    pub batch: usize,
    /// That of the learning rates in the checkpoint.
    pub rate: usize,
}

/// The changes for `ranks` processes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub share: Share,
    /// Factor of the learning rates.
    pub factor: f64,
    /// What has changed, for the user; `None` if nothing has.
    pub text: Option<String>,
}

/// What to do with `ranks` processes, given the program's own settings.
pub(super) fn change(policy: Option<ElasticBatch>, meant: Meant, own: Share, ranks: usize) -> Change {
    let none = Change { share: own, factor: 1.0, text: None };
    match policy {
        None if meant.batch == ranks => none,
        None => {
            let text = format!(
                "the run began with {} processes and continues with {ranks}: each keeps its batch, so a step has {} the samples at the same \
                 learning rate; `rushlight run --elastic-batch keep` or `scale` adapts one of them",
                meant.batch,
                ratio(ranks, meant.batch)
            );
            Change { text: Some(text), ..none }
        }
        Some(ElasticBatch::Scale) if meant.rate == ranks => none,
        Some(ElasticBatch::Scale) => {
            let text = format!(
                "the learning rates were for {} processes and are now {} those, for {ranks}; each process keeps its batch (elastic batch: scale)",
                meant.rate,
                ratio(ranks, meant.rate)
            );
            Change { factor: ranks as f64 / meant.rate as f64, text: Some(text), ..none }
        }
        Some(ElasticBatch::Keep) if meant.batch == ranks => none,
        Some(ElasticBatch::Keep) => {
            let (share, what) = keep(meant.batch, own, ranks);
            let text = format!(
                "the run began with {} processes and continues with {ranks}: {what} (elastic batch: keep)",
                meant.batch
            );
            Change { share, text: Some(text), ..none }
        }
    }
}

/// The share of each of `ranks` processes, so that a step has as many samples as with `before`.
fn keep(before: usize, own: Share, ranks: usize) -> (Share, String) {
    let batches = before as u64 * own.accumulate;
    let Some(size) = own.batch_size else {
        // Batches cannot be cut: whole ones are shared out.
        let accumulate = ((batches as f64 / ranks as f64).round() as u64).max(1);
        let now = accumulate * ranks as u64;
        let text = format!("a step has {now} batches, {accumulate} of each process, instead of {batches}");
        return (Share { accumulate, ..own }, text);
    };
    let samples = batches * size as u64;
    let accumulate = samples.div_ceil((ranks * size) as u64).max(1);
    let parts = ranks as u64 * accumulate;
    let batch_size = ((samples as f64 / parts as f64).round() as usize).max(1);
    let now = batch_size as u64 * parts;
    let kept = if now == samples {
        format!("keeps its {samples} samples")
    } else {
        format!("has {now} samples, {samples} before")
    };
    let text = format!("a step {kept}, with {accumulate} batches of {batch_size} on each process");
    (Share { batch_size: Some(batch_size), accumulate }, text)
}

/// "1/2 of", "3/2 of" or "2 times".
fn ratio(now: usize, before: usize) -> String {
    // Euclid's greatest common divisor.
    let (mut divisor, mut rest) = (now, before);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    match (now / divisor.max(1), before / divisor.max(1)) {
        (times, 1) => format!("{times} times"),
        (over, under) => format!("{over}/{under} of"),
    }
}

/// Names of learning rates in the states of optimizers (in `param_groups`) and of schedules. Floors that the user sets
/// (`eta_min`, `min_lrs`) stay.
const RATES: [&str; 8] = ["lr", "initial_lr", "max_lr", "min_lr", "swa_lr", "base_lrs", "max_lrs", "_last_lr"];

/// Multiplies the learning rates in saved states of optimizers and schedules.
pub(super) fn scale_rates(state: &mut Value, factor: f64) {
    match state {
        Value::List(items) | Value::Tuple(items) => items.iter_mut().for_each(|item| scale_rates(item, factor)),
        Value::Dict(entries) => {
            for (key, value) in entries {
                match key.to_string() {
                    // Tensors by parameter: no rates.
                    name if name == "state" => {}
                    name if RATES.contains(&name.as_str()) => multiply(value, factor),
                    _ => scale_rates(value, factor),
                }
            }
        }
        _ => {}
    }
}

fn multiply(value: &mut Value, factor: f64) {
    match value {
        Value::Float(rate) => *rate *= factor,
        Value::Int(rate) => *value = Value::Float(*rate as f64 * factor),
        Value::List(items) | Value::Tuple(items) => items.iter_mut().for_each(|item| multiply(item, factor)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ElasticBatch::{Keep, Scale};

    fn meant(ranks: usize) -> Meant {
        Meant { batch: ranks, rate: ranks }
    }

    #[test]
    fn a_kept_step_has_the_same_samples() {
        let own = Share { batch_size: Some(32), accumulate: 1 };
        let shares = |before: usize, ranks: usize| change(Some(Keep), meant(before), own, ranks).share;
        // Fewer processes accumulate, more take smaller batches; no batch is larger than the program's.
        assert_eq!(shares(4, 2), Share { batch_size: Some(32), accumulate: 2 });
        assert_eq!(shares(4, 1), Share { batch_size: Some(32), accumulate: 4 });
        assert_eq!(shares(2, 4), Share { batch_size: Some(16), accumulate: 1 });
        assert_eq!(shares(4, 4), own);
        // 128 samples do not divide by 3: two batches of 21 on each make 126.
        assert_eq!(shares(4, 3), Share { batch_size: Some(21), accumulate: 2 });
        assert_eq!(shares(1, 64), Share { batch_size: Some(1), accumulate: 1 });
        let text = change(Some(Keep), meant(4), own, 3).text.unwrap();
        assert!(text.contains("126 samples, 128 before"), "{text}");
        // Batches of the user's own sampler stay whole.
        let sampler = Share { batch_size: None, accumulate: 2 };
        assert_eq!(change(Some(Keep), meant(4), sampler, 2).share.accumulate, 4);
        assert_eq!(change(Some(Keep), meant(1), sampler, 8).share.accumulate, 1);
    }

    #[test]
    fn a_scaled_rate_follows_the_processes() {
        let own = Share { batch_size: Some(8), accumulate: 1 };
        let halved = change(Some(Scale), meant(4), own, 2);
        assert_eq!((halved.share, halved.factor), (own, 0.5));
        // A run that began with four and was scaled to two returns to four.
        let back = change(Some(Scale), Meant { batch: 4, rate: 2 }, own, 4);
        assert_eq!(back.factor, 2.0);
        assert_eq!(change(Some(Scale), Meant { batch: 4, rate: 2 }, own, 2).text, None);
    }

    #[test]
    fn without_a_policy_the_change_is_said() {
        let own = Share { batch_size: Some(8), accumulate: 1 };
        let said = change(None, meant(4), own, 2);
        assert_eq!((said.share, said.factor), (own, 1.0));
        assert!(said.text.unwrap().contains("--elastic-batch"));
        assert_eq!(change(None, meant(4), own, 4).text, None);
    }

    #[test]
    fn rates_of_states_are_multiplied_and_nothing_else() {
        let dict = |entries: Vec<(&str, Value)>| Value::Dict(entries.into_iter().map(|(k, v)| (k.into(), v)).collect());
        let group = dict(vec![("lr", 0.1.into()), ("initial_lr", 1.into()), ("momentum", 0.9.into())]);
        let mut state = dict(vec![
            ("state", dict(vec![("lr", 5.0.into())])),
            ("param_groups", Value::List(vec![group])),
            ("base_lrs", Value::List(vec![0.5.into()])),
            ("gamma", 0.1.into()),
        ]);
        scale_rates(&mut state, 2.0);
        let group = &state.get("param_groups").unwrap().as_list().unwrap()[0];
        let rate = |value: &Value, name: &str| value.get(name).unwrap().as_float().unwrap();
        assert_eq!((rate(group, "lr"), rate(group, "initial_lr"), rate(group, "momentum")), (0.2, 2.0, 0.9));
        assert_eq!(state.get("base_lrs").unwrap().as_list().unwrap()[0].as_float().unwrap(), 1.0);
        assert_eq!((rate(state.get("state").unwrap(), "lr"), rate(&state, "gamma")), (5.0, 0.1));
    }

    #[test]
    fn names_are_checked() {
        assert_eq!("keep".parse::<ElasticBatch>().unwrap(), Keep);
        assert!("half".parse::<ElasticBatch>().unwrap_err().to_string().contains("keep or scale"));
    }
}
