//! The flight record: the last collectives of a rank, for post-mortem analysis.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of collectives that are remembered.
const KEPT: usize = 256;

/// State of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Queued.
    Queued,
    /// Under way.
    Started,
    /// Done.
    Completed,
    /// Ended with an error.
    Failed,
}

/// One collective of the record.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number in the group, from 1.
    pub sequence: u64,
    /// Its description: `all_reduce(sum) float32 [2, 3]`.
    pub collective: String,
    /// Its stage.
    pub stage: Stage,
    /// When it was called.
    pub called: SystemTime,
    /// How long it took once started. On a device: until its end was seen, a few milliseconds later than it came.
    pub took: Option<Duration>,
    started: Option<Instant>,
}

/// The last collectives of one rank in one group.
#[derive(Clone, Debug)]
pub struct FlightRecord {
    /// The group's name.
    pub group: String,
    /// This rank in the world.
    pub rank: usize,
    /// Oldest first.
    pub entries: VecDeque<Entry>,
}

impl FlightRecord {
    pub(crate) fn new(group: &str, rank: usize) -> Self {
        Self { group: group.into(), rank, entries: VecDeque::with_capacity(KEPT) }
    }

    pub(crate) fn call(&mut self, sequence: u64, collective: String) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        let called = SystemTime::now();
        self.entries.push_back(Entry { sequence, collective, stage: Stage::Queued, called, took: None, started: None });
    }

    pub(crate) fn start(&mut self, sequence: u64) {
        if let Some(entry) = self.find(sequence) {
            entry.stage = Stage::Started;
            entry.started = Some(Instant::now());
        }
    }

    /// The end of a collective; the first report counts.
    pub(crate) fn end(&mut self, sequence: u64, well: bool) {
        if let Some(entry) = self.find(sequence).filter(|e| !matches!(e.stage, Stage::Completed | Stage::Failed)) {
            entry.stage = if well { Stage::Completed } else { Stage::Failed };
            entry.took = entry.started.map(|at| at.elapsed());
        }
    }

    fn find(&mut self, sequence: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().rev().find(|entry| entry.sequence == sequence)
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let entries: Vec<Value> = self
            .entries
            .iter()
            .map(|e| {
                json!({
                    "sequence": e.sequence,
                    "collective": e.collective,
                    "stage": format!("{:?}", e.stage).to_lowercase(),
                    "called_unix_s": e.called.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
                    "took_s": e.took.map(|t| t.as_secs_f64()),
                })
            })
            .collect();
        json!({ "group": self.group, "rank": self.rank, "entries": entries })
    }
}

/// The last ten, a line each.
impl fmt::Display for FlightRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "last collectives of rank {} in group {}:", self.rank, self.group)?;
        for e in self.entries.iter().skip(self.entries.len().saturating_sub(10)) {
            let stage = format!("{:?}", e.stage).to_lowercase();
            let took = e.took.map(|t| format!(", {:.1} ms", t.as_secs_f64() * 1e3)).unwrap_or_default();
            writeln!(f, "  {:>6}  {stage:<9}  {}{took}", e.sequence, e.collective)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_keeps_the_last_collectives() {
        let mut record = FlightRecord::new("world", 3);
        for i in 1..=300 {
            record.call(i, format!("all_reduce(sum) float32 [{i}]"));
            record.start(i);
            record.end(i, i != 300);
        }
        record.call(301, "barrier".into());
        assert_eq!(record.entries.len(), KEPT);
        let text = record.to_string();
        assert!(text.contains("300  failed") && text.contains("301  queued") && !text.contains("[290]"), "{text}");
        let json = record.to_json();
        assert_eq!(json["entries"][255]["stage"], "queued");
        assert_eq!((json["rank"].as_u64(), json["entries"][0]["sequence"].as_u64()), (Some(3), Some(46)));
    }
}
