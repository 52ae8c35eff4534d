//! A run's checkpoints: where they were saved, with which metric, how large they are.

use rushlight_train::checkpoint_info;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of checkpoints of a run.
pub const MAX_CHECKPOINTS: usize = 200;

/// A file or directory that may be a checkpoint, as a walk finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path in the run's directory.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Time of the last change.
    pub saved: Option<SystemTime>,
    /// Its size, with everything in it.
    pub bytes: u64,
}

/// A checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Its path in the run's directory.
    pub name: String,
    /// Seconds since 1970.
    pub time: f64,
    /// Its size.
    pub bytes: u64,
    /// Optimizer steps done.
    pub step: Option<i64>,
    /// The epoch.
    pub epoch: Option<i64>,
    /// Name of the metric, if it says so.
    pub metric_name: Option<String>,
    /// The metric it was saved with.
    pub metric: Option<f64>,
}

/// Whether a name is one of the Trainer's (`checkpoint-N.pt`, `checkpoint-N`) or of Lightning's (`*.ckpt`).
pub fn is_checkpoint(name: &str, is_directory: bool) -> bool {
    let number = name.strip_prefix("checkpoint-").map(|rest| rest.strip_suffix(".pt").unwrap_or(rest));
    let ours = number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    (ours && name.ends_with(".pt") != is_directory) || name.ends_with(".ckpt")
}

/// Reads what is known of a checkpoint. One that cannot be read is shown by its name.
pub fn describe(found: &Found) -> Checkpoint {
    let time = found.saved.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut checkpoint = Checkpoint {
        name: found.name.clone(),
        time: time.map_or(f64::NAN, |time| time.as_secs_f64()),
        bytes: found.bytes,
        ..Checkpoint::default()
    };
    if found.name.ends_with(".ckpt") {
        by_name(&found.path, &mut checkpoint);
    } else if let Ok(info) = checkpoint_info(&found.path) {
        checkpoint.step = Some(info.position.step as i64);
        checkpoint.epoch = Some(info.position.epoch as i64);
        checkpoint.metric = info.metric;
    }
    checkpoint
}

/// Lightning's names tell step, epoch and metric: `epoch=3-step=400-val_loss=0.25.ckpt`.
fn by_name(path: &Path, checkpoint: &mut Checkpoint) {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts = stem.split('=').collect::<Vec<_>>().into_iter();
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A value, then perhaps a dash and the next name. A dash may also be the value's sign, or its exponent's.
        let end = part.char_indices().skip(1).find(|(at, c)| *c == '-' && !part[..*at].ends_with(['e', 'E']));
        let (value, next) = end.map_or((part, ""), |(at, _)| (&part[..at], &part[at + 1..]));
        match (name.as_str(), value.parse::<f64>()) {
            ("epoch", Ok(value)) => checkpoint.epoch = Some(value as i64),
            ("step", Ok(value)) => checkpoint.step = Some(value as i64),
            (_, Ok(value)) if checkpoint.metric.is_none() => {
                checkpoint.metric = Some(value);
                checkpoint.metric_name = Some(name.clone());
            }
            _ => {}
        }
        name = next.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, directory, is) in [
            ("checkpoint-000000000012.pt", false, true),
            ("checkpoint-12", true, true),
            ("checkpoint-12", false, false),
            ("checkpoint-x.pt", false, false),
            ("last.ckpt", false, true),
            ("checkpoint-12.pt.damaged", false, false),
        ] {
            assert_eq!(is_checkpoint(name, directory), is, "{name}");
        }
        let mut checkpoint = Checkpoint::default();
        by_name(Path::new("a/epoch=3-step=400-val-loss=-2.5e-3.ckpt"), &mut checkpoint);
        assert_eq!((checkpoint.epoch, checkpoint.step, checkpoint.metric), (Some(3), Some(400), Some(-2.5e-3)));
        assert_eq!(checkpoint.metric_name.as_deref(), Some("val-loss"));
        by_name(Path::new("=="), &mut Checkpoint::default());
    }
}
