//! All data of one run.

use super::checkpoints::Checkpoint;
use super::series::Series;
use super::tables::Row;
use rushlight_train::loggers::tensorboard::{Buckets, EventContent, EventValue, PrCurve};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Limits of a run's data, so that no directory can exhaust memory.
const MAX_SERIES: usize = 5_000;
const MAX_RANKS: usize = 4_096;
const MAX_TAGS: usize = 500;
const MAX_HISTOGRAMS: usize = 60;
const MAX_MEDIA: usize = 60;
const MAX_TEXTS: usize = 60;
const MAX_TEXT: usize = 64 << 10;
const MAX_HPARAMS: usize = 1_000;

/// Sources of a curve's values. Later ones are preferred: they have full precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// TensorBoard's event files.
    Events,
    /// `metrics.csv`.
    Csv,
    /// `metrics.jsonl`.
    JsonLines,
}

/// A histogram of a step.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The step.
    pub step: i64,
    /// Seconds since 1970.
    pub time: f64,
    /// Its buckets.
    pub buckets: Buckets,
}

/// An image or a sound of a step: its bytes stay in the file.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The step.
    pub step: i64,
    /// Seconds since 1970.
    pub time: f64,
    /// The event file.
    pub file: PathBuf,
    /// Offset of its bytes.
    pub offset: u64,
    /// Their number.
    pub len: usize,
}

/// A curve of precision and recall of a step.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The step.
    pub step: i64,
    /// Seconds since 1970.
    pub time: f64,
    /// The curve.
    pub curve: PrCurve,
}

/// A text of a step.
#[derive(Clone, Debug)]
pub struct Text {
    /// The step.
    pub step: i64,
    /// Seconds since 1970.
    pub time: f64,
    /// The text.
    pub text: String,
}

/// A run.
#[derive(Debug, Default)]
pub struct Run {
    /// Number that identifies the run in the page.
    pub id: u64,
    /// The run's directory, relative to the root.
    pub name: String,
    /// Change counter.
    pub seq: u64,
    /// Curves by name.
    pub series: BTreeMap<String, (Source, Series)>,
    /// Curves of each rank.
    pub ranks: BTreeMap<u32, BTreeMap<String, Series>>,
    /// Distributions by name.
    pub histograms: BTreeMap<String, Vec<Histogram>>,
    /// Images by name.
    pub images: BTreeMap<String, Vec<Encoded>>,
    /// Sounds by name.
    pub audio: BTreeMap<String, Vec<Encoded>>,
    /// Curves of precision and recall by name.
    pub pr_curves: BTreeMap<String, Vec<Curve>>,
    /// Texts by name.
    pub texts: BTreeMap<String, Vec<Text>>,
    /// Hyperparameters by name.
    pub hparams: Map<String, Json>,
    /// `config.json` and `environment.json`.
    pub config: Json,
    /// `environment.json`.
    pub environment: Json,
    /// `status.json`: what the run said of itself last.
    pub status: Json,
    /// What has become of it, by [`state`](super::state).
    pub state: &'static str,
    /// `notes.json`: the user's notes and tags.
    pub notes: Json,
    /// Checkpoints, in the order of their names.
    pub checkpoints: Vec<Checkpoint>,
    /// Logs: name and file.
    pub logs: Vec<(String, PathBuf)>,
    /// Exported models: name and file.
    pub models: Vec<(String, PathBuf)>,
    /// Time of the first and of the newest value, in seconds since 1970.
    pub first_time: Option<f64>,
    /// Time of the newest value.
    pub last_time: Option<f64>,
    /// Problems with files, by file.
    pub problems: BTreeMap<String, String>,
}

impl Run {
    fn saw(&mut self, time: f64) {
        if time.is_finite() && time > 0.0 {
            self.first_time = Some(self.first_time.map_or(time, |first| first.min(time)));
            self.last_time = Some(self.last_time.map_or(time, |last| last.max(time)));
        }
    }

    fn scalar(&mut self, source: Source, tag: &str, step: i64, time: f64, value: f64) {
        if !self.series.contains_key(tag) {
            if self.series.len() >= MAX_SERIES {
                let text = format!("more than {MAX_SERIES} curves: the others are left out");
                self.problems.insert("curves".into(), text);
                return;
            }
            self.series.insert(tag.to_owned(), (source, Series::default()));
        }
        let Some((known, series)) = self.series.get_mut(tag) else { return };
        if source < *known {
            return;
        }
        if source > *known {
            *known = source;
            series.purge(i64::MIN, self.seq);
        }
        series.push(step, time, value, self.seq);
    }

    /// Adds a row of metrics. Rows without a step are numbered.
    pub fn row(&mut self, source: Source, row: &Row, count: i64) {
        let step = row.step.unwrap_or(count);
        let time = row.time.unwrap_or(f64::NAN);
        self.saw(time);
        for (name, value) in &row.values {
            self.scalar(source, name, step, time, *value);
        }
        if let Some(epoch) = row.epoch {
            self.scalar(source, "epoch", step, time, epoch);
        }
    }

    /// Adds a row of a rank's statistics.
    pub fn rank_row(&mut self, rank: u32, row: &Row) {
        if !self.ranks.contains_key(&rank) && self.ranks.len() >= MAX_RANKS {
            return;
        }
        let (step, time) = (row.step.unwrap_or(0), row.time.unwrap_or(f64::NAN));
        self.saw(time);
        let seq = self.seq;
        let all = self.ranks.entry(rank).or_default();
        for (name, value) in &row.values {
            if all.len() < MAX_TAGS || all.contains_key(name) {
                all.entry(name.clone()).or_default().push(step, time, *value, seq);
            }
        }
    }

    /// Adds a value of an event file.
    pub fn event(&mut self, file: &Path, value: EventValue) {
        let EventValue { wall_time: time, step, tag, content } = value;
        self.saw(time);
        match content {
            EventContent::Scalar(value) => self.scalar(Source::Events, &tag, step, time, value),
            EventContent::Histogram(buckets) => {
                keep(&mut self.histograms, tag, Histogram { step, time, buckets }, MAX_HISTOGRAMS);
            }
            EventContent::Images(images) => {
                keep_encoded(&mut self.images, &tag, file, (step, time), images);
            }
            EventContent::Audio(sounds) => keep_encoded(&mut self.audio, &tag, file, (step, time), sounds),
            EventContent::PrCurve(curve) => {
                keep(&mut self.pr_curves, tag, Curve { step, time, curve }, MAX_HISTOGRAMS);
            }
            EventContent::Text(texts) => {
                let mut text = texts.join("\n\n");
                if text.len() > MAX_TEXT {
                    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                    text.truncate(end);
                    text.push('…');
                }
                keep(&mut self.texts, tag, Text { step, time, text }, MAX_TEXTS);
            }
            EventContent::Hparams(found) => self.add_hparams(found),
            EventContent::Restart => {
                let seq = self.seq;
                for (source, series) in self.series.values_mut() {
                    if *source == Source::Events {
                        series.purge(step, seq);
                    }
                }
                self.histograms.values_mut().for_each(|all| all.retain(|h| h.step < step));
                self.images.values_mut().for_each(|all| all.retain(|i| i.step < step));
                self.audio.values_mut().for_each(|all| all.retain(|a| a.step < step));
                self.pr_curves.values_mut().for_each(|all| all.retain(|c| c.step < step));
                self.texts.values_mut().for_each(|all| all.retain(|t| t.step < step));
            }
        }
    }

    /// Adds hyperparameters; known ones are kept.
    pub fn add_hparams(&mut self, found: Map<String, Json>) {
        for (name, value) in found {
            if self.hparams.len() < MAX_HPARAMS {
                self.hparams.entry(name).or_insert(value);
            }
        }
    }

    /// Drops all curves of a source whose file was truncated or replaced.
    pub fn forget(&mut self, source: Source) {
        let seq = self.seq;
        for (known, series) in self.series.values_mut() {
            if *known == source {
                series.purge(i64::MIN, seq);
            }
        }
        if source == Source::Events {
            self.histograms.clear();
            self.images.clear();
            self.audio.clear();
            self.pr_curves.clear();
            self.texts.clear();
        }
    }

    /// Drops a rank's curves.
    pub fn forget_rank(&mut self, rank: u32) {
        let seq = self.seq;
        for series in self.ranks.get_mut(&rank).into_iter().flat_map(BTreeMap::values_mut) {
            series.purge(i64::MIN, seq);
        }
    }
}

/// Adds images or sounds of a name; further ones of the same event get a number.
fn keep_encoded(
    all: &mut BTreeMap<String, Vec<Encoded>>,
    tag: &str,
    file: &Path,
    (step, time): (i64, f64),
    items: Vec<rushlight_train::loggers::tensorboard::Encoded>,
) {
    for (i, item) in items.into_iter().enumerate().take(16) {
        let tag = if i == 0 { tag.to_owned() } else { format!("{tag}/{i}") };
        let item = Encoded { step, time, file: file.to_owned(), offset: item.offset, len: item.len };
        keep(all, tag, item, MAX_MEDIA);
    }
}

/// Adds an item of a name. If there are too many, every second is dropped; the first and the newest stay.
fn keep<T>(all: &mut BTreeMap<String, Vec<T>>, tag: String, item: T, most: usize) {
    if all.len() >= MAX_TAGS && !all.contains_key(&tag) {
        return;
    }
    let items = all.entry(tag).or_default();
    items.push(item);
    if items.len() > most {
        let last = items.len() - 1;
        let mut index = 0;
        items.retain(|_| {
            let kept = index % 2 == 0 || index == last;
            index += 1;
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_sources_replace_others() {
        let mut run = Run { seq: 1, ..Run::default() };
        let event = |step, v| EventValue { wall_time: 1.0, step, tag: "loss".into(), content: EventContent::Scalar(v) };
        run.event("f".as_ref(), event(1, 0.1));
        run.event("f".as_ref(), event(2, 0.2));
        let row = Row { step: Some(1), values: vec![("loss".into(), 0.125)], ..Row::default() };
        run.row(Source::JsonLines, &row, 0);
        run.event("f".as_ref(), event(3, 0.3));
        let (_, points) = run.series["loss"].1.since(0, 10).unwrap();
        assert_eq!(points.iter().map(|p| p.value).collect::<Vec<_>>(), [0.125]);
    }

    #[test]
    fn many_items_are_thinned() {
        let mut all = BTreeMap::new();
        (0..1000).for_each(|i| keep(&mut all, "t".into(), i, 60));
        let items = &all["t"];
        assert!(items.len() <= 60 && items[0] == 0 && *items.last().unwrap() == 999);
        assert!(items.windows(2).all(|w| w[0] < w[1]));
    }
}
