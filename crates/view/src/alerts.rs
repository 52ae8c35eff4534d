//! Alerts: a command of the user's when a run dies, fails, diverges or stalls.

use crate::runs::Run;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};

/// Commands that may run at once: a broken one must not fill the machine.
const MAX_COMMANDS: usize = 8;

/// Watches runs, and starts the command once for each of their troubles.
#[derive(Debug)]
pub struct Alerts {
    command: String,
    /// Seconds without a value after which a running run has stalled.
    stall: f64,
    /// Runs that were seen running, and the kinds of trouble told of each.
    seen: BTreeMap<String, BTreeSet<&'static str>>,
    children: Vec<Child>,
}

impl Alerts {
    pub fn new(command: String, stall: f64) -> Self {
        Self { command, stall, seen: BTreeMap::new(), children: Vec::new() }
    }

    /// Looks at the runs as they are now.
    pub fn look<'a>(&mut self, runs: impl Iterator<Item = &'a Run>, now: f64) {
        self.children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        let found: Vec<(String, &'static str, String)> = runs.filter_map(|run| self.trouble(run, now)).collect();
        for (run, kind, text) in found {
            self.start(&run, kind, &text);
        }
    }

    /// A run's trouble that was not told yet. Runs that were over before are history.
    fn trouble(&mut self, run: &Run, now: f64) -> Option<(String, &'static str, String)> {
        let told = match run.state {
            "running" => self.seen.entry(run.name.clone()).or_default(),
            _ => self.seen.get_mut(&run.name)?,
        };
        let reason = run.status.get("reason").and_then(serde_json::Value::as_str);
        let diverged = || {
            let mut losses = run.series.iter().filter(|(name, _)| name.to_lowercase().contains("loss"));
            losses.find_map(|(name, (_, series))| series.last().filter(|p| !p.value.is_finite()).map(|p| (name, p)))
        };
        let (kind, text) = match run.state {
            "died" => ("died", "its process is gone".to_owned()),
            "lost" => ("lost", "its machine has written nothing for two minutes".to_owned()),
            "failed" => ("failed", reason.unwrap_or("it ended with an error").to_owned()),
            _ => match (diverged(), run.last_time.map(|last| now - last)) {
                (Some((name, point)), _) => ("diverged", format!("{name} is {} at step {}", point.value, point.step)),
                (None, Some(quiet)) if run.state == "running" && quiet > self.stall => {
                    ("stalled", format!("no value for {quiet:.0} seconds"))
                }
                (None, _) => {
                    // Values again: it may stall once more.
                    told.remove("stalled");
                    return None;
                }
            },
        };
        told.insert(kind).then(|| (run.name.clone(), kind, text))
    }

    fn start(&mut self, run: &str, kind: &str, text: &str) {
        eprintln!("rushlight ui: {run} {kind}: {text}");
        if self.children.len() >= MAX_COMMANDS {
            eprintln!("rushlight ui: {MAX_COMMANDS} alerts are still running; this one is not started");
            return;
        }
        let started = Command::new("sh")
            .args(["-c", &self.command])
            .envs([("RUSHLIGHT_ALERT", kind), ("RUSHLIGHT_ALERT_RUN", run), ("RUSHLIGHT_ALERT_TEXT", text)])
            .stdin(Stdio::null())
            .spawn();
        match started {
            Ok(child) => self.children.push(child),
            Err(e) => eprintln!("rushlight ui: the alert cannot be started: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::Source;

    #[test]
    fn each_trouble_is_told_once() {
        let mut alerts = Alerts::new("true".into(), 60.0);
        let mut run = Run { name: "a".into(), ..Run::default() };
        let row = |step, value, time| {
            let values = vec![("val_loss".into(), value)];
            crate::runs::Row { step: Some(step), time: Some(time), values, ..Default::default() }
        };
        run.row(Source::JsonLines, &row(1, 0.5, 1000.0), 0);
        // A run that was over before is history.
        run.state = "died";
        assert!(alerts.trouble(&run, 1010.0).is_none());
        run.state = "running";
        assert!(alerts.trouble(&run, 1010.0).is_none());
        assert_eq!(alerts.trouble(&run, 1100.0).unwrap().1, "stalled");
        assert!(alerts.trouble(&run, 1200.0).is_none());
        run.row(Source::JsonLines, &row(2, f64::NAN, 1250.0), 0);
        let (_, kind, text) = alerts.trouble(&run, 1251.0).unwrap();
        assert_eq!((kind, text.as_str()), ("diverged", "val_loss is NaN at step 2"));
        assert!(alerts.trouble(&run, 1252.0).is_none());
        run.state = "failed";
        run.status = serde_json::json!({"reason": "out of memory"});
        let told = alerts.trouble(&run, 1300.0).unwrap();
        assert_eq!((told.1, told.2.as_str()), ("failed", "out of memory"));
    }
}
