//! All runs, and the thread that keeps them current.

use super::beneath::Root;
use super::checkpoints::{Checkpoint, describe};
use super::run::{Run, Source};
use super::scan::{Files, scan};
use super::status;
use super::tables::{MAX_LINE, csv_rows, json_row, whole_lines};
use super::tail::{Grown, Tail};
use crate::alerts::Alerts;
use rushlight_core::sync::lock;
use rushlight_train::loggers::tensorboard::EventParser;
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Intervals between polls of files, and between directory walks.
const LOOK: Duration = Duration::from_millis(500);
const WALK: Duration = Duration::from_secs(2);
/// Bytes read from all files between two checks of the clock, so that a page sees large directories fill up.
const BUDGET: usize = 32 << 20;
/// Largest description of a run, and largest CSV file.
const MAX_DESCRIPTION: u64 = 4 << 20;
const MAX_CSV: u64 = 64 << 20;

/// Notifications of the page.
#[derive(Debug, Default)]
pub struct State {
    /// Runs by number.
    pub runs: BTreeMap<u64, Run>,
    /// Count of changes to anything.
    pub version: u64,
    /// Whether there were more runs or files than are read.
    pub cut: bool,
    /// Whether the initial contents have been read.
    pub loaded: bool,
}

/// All runs below a directory.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    beneath: Root,
    state: Mutex<State>,
    changed: Condvar,
    alerts: Mutex<Option<Alerts>>,
}

impl Store {
    /// Nothing is read before a [`Watcher`] runs.
    pub fn new(root: PathBuf) -> Arc<Self> {
        let beneath = Root::new(&root);
        Arc::new(Self { root, beneath, state: Mutex::default(), changed: Condvar::new(), alerts: Mutex::default() })
    }

    /// Watches the runs for trouble.
    pub fn set_alerts(&self, alerts: Alerts) {
        *lock(&self.alerts) = Some(alerts);
    }

    /// Opens a file below the directory, never one elsewhere.
    pub fn open(&self, path: &Path) -> std::io::Result<File> {
        self.beneath.open(path)
    }

    /// Writes a file of a run, whole or not at all. The run's directory must be below this one, without links.
    pub fn write(&self, run: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let root = self.root.canonicalize()?;
        let directory = if run == "." { root.clone() } else { root.join(run) };
        if directory.canonicalize()? != directory || !directory.starts_with(&root) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let new = directory.join(format!(".{name}.{}", std::process::id()));
        std::fs::write(&new, bytes)?;
        std::fs::rename(&new, directory.join(name))
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until the version changes, or until a timeout.
    pub fn wait(&self, version: u64, time: Duration) -> MutexGuard<'_, State> {
        let guard = self.changed.wait_timeout_while(self.lock(), time, |state| state.version == version);
        guard.unwrap_or_else(|e| e.into_inner()).0
    }

    /// Reads everything that is there, in this thread.
    pub fn read_now(&self) {
        let mut watcher = Watcher::default();
        while watcher.look(self) {}
    }

    /// Starts a thread that reads until the store is dropped.
    pub fn watch(self: &Arc<Self>) -> std::io::Result<()> {
        let weak: Weak<Self> = Arc::downgrade(self);
        std::thread::Builder::new().name("rushlight-ui-files".into()).spawn(move || {
            let mut watcher = Watcher::default();
            while let Some(store) = weak.upgrade() {
                let more = watcher.look(&store);
                drop(store);
                if !more {
                    std::thread::sleep(LOOK);
                }
            }
        })?;
        Ok(())
    }
}

/// Files of a run that are read as they grow.
#[derive(Default)]
struct Reading {
    files: Files,
    events: Vec<(Tail, EventParser)>,
    json_lines: Option<(Tail, i64)>,
    csv: Option<PathBuf>,
    ranks: Vec<(u32, Tail)>,
    /// Modification times of files that are read completely.
    times: HashMap<PathBuf, std::time::SystemTime>,
}

/// Reads runs into a store.
#[derive(Default)]
pub struct Watcher {
    runs: BTreeMap<String, (u64, Reading)>,
    walked: Option<Instant>,
    next_id: u64,
}

impl Watcher {
    /// Polls everything once. Returns whether there was more than could be read at once.
    pub fn look(&mut self, store: &Store) -> bool {
        if self.walked.is_none_or(|at| at.elapsed() >= WALK) {
            self.walk(store);
        }
        let mut budget = BUDGET;
        for (name, (id, reading)) in &mut self.runs {
            reading.look(*id, name, store, &mut budget);
            if budget == 0 {
                return true;
            }
        }
        let mut state = store.lock();
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64());
        let mut changed = !std::mem::replace(&mut state.loaded, true);
        for run in state.runs.values_mut() {
            let found = status::state(&run.status, run.last_time, now);
            if found != run.state {
                run.state = found;
                run.seq += 1;
                changed = true;
            }
        }
        if let Some(alerts) = lock(&store.alerts).as_mut() {
            alerts.look(state.runs.values(), now);
        }
        if changed {
            state.version += 1;
            store.changed.notify_all();
        }
        false
    }

    fn walk(&mut self, store: &Store) {
        let (found, cut) = scan(store.root());
        self.walked = Some(Instant::now());
        // Checkpoints are read before the page has to wait for the lock.
        let known = |name: &str| self.runs.get(name).map_or(&[][..], |(_, reading)| &reading.files.checkpoints);
        let mut checkpoints: BTreeMap<String, Vec<Checkpoint>> = found
            .iter()
            .filter(|(name, files)| known(name) != files.checkpoints)
            .map(|(name, files)| (name.clone(), files.checkpoints.iter().map(describe).collect()))
            .collect();
        let gone: Vec<String> = self.runs.keys().filter(|name| !found.contains_key(*name)).cloned().collect();
        let mut state = store.lock();
        let mut changed = state.cut != cut || !gone.is_empty();
        state.cut = cut;
        for name in gone {
            if let Some((id, _)) = self.runs.remove(&name) {
                state.runs.remove(&id);
            }
        }
        for (name, files) in found {
            let (id, reading) = self.runs.entry(name.clone()).or_insert_with(|| {
                self.next_id += 1;
                changed = true;
                state.runs.insert(self.next_id, Run { id: self.next_id, name, ..Run::default() });
                (self.next_id, Reading::default())
            });
            if reading.files != files {
                reading.take(&store.beneath, &files);
                if let Some(run) = state.runs.get_mut(id) {
                    if let Some(checkpoints) = checkpoints.remove(&run.name) {
                        run.checkpoints = checkpoints;
                        run.seq += 1;
                    }
                    let listed = |all: &BTreeMap<String, PathBuf>| {
                        all.iter().map(|(name, path)| (name.clone(), path.clone())).collect()
                    };
                    run.logs = listed(&files.logs);
                    run.models = listed(&files.models);
                }
                reading.files = files;
                changed = true;
            }
        }
        if changed {
            state.version += 1;
            store.changed.notify_all();
        }
    }
}

impl Reading {
    /// Adds new files and removes missing ones.
    fn take(&mut self, root: &Root, files: &Files) {
        self.events.retain(|(tail, _)| files.events.iter().any(|path| path == tail.path()));
        for path in &files.events {
            if !self.events.iter().any(|(tail, _)| tail.path() == path) {
                self.events.push((Tail::new(root, path.clone()), EventParser::new()));
            }
        }
        self.events.sort_by(|a, b| a.0.path().cmp(b.0.path()));
        if self.json_lines.is_none() {
            self.json_lines = files.json_lines.clone().map(|path| (Tail::new(root, path), 0));
        }
        self.csv = files.csv.clone().filter(|_| files.json_lines.is_none());
        self.ranks.retain(|(rank, _)| files.ranks.contains_key(rank));
        for (rank, path) in &files.ranks {
            if !self.ranks.iter().any(|(known, _)| known == rank) {
                self.ranks.push((*rank, Tail::new(root, path.clone())));
            }
        }
    }

    /// Reads new data, up to the budget, and updates the store.
    fn look(&mut self, id: u64, name: &str, store: &Store, budget: &mut usize) {
        let change = |act: &mut dyn FnMut(&mut Run)| {
            let mut state = store.lock();
            let Some(run) = state.runs.get_mut(&id) else { return };
            run.seq += 1;
            act(run);
            state.version += 1;
            store.changed.notify_all();
        };
        let mut void = false;
        for (tail, parser) in &mut self.events {
            void |= read_events(tail, parser, budget, name, &change);
        }
        if void {
            // One of several files was truncated or replaced, and its data is mixed with the others': read all again.
            change(&mut |run| run.forget(Source::Events));
            for (tail, parser) in &mut self.events {
                tail.restart();
                *parser = EventParser::new();
            }
        }
        if let Some((tail, count)) = &mut self.json_lines {
            read_lines(tail, budget, &change, &mut |run, lines| match lines {
                None => {
                    *count = 0;
                    run.forget(Source::JsonLines);
                }
                Some(line) => match json_row(line) {
                    Some(row) => {
                        *count += 1;
                        run.row(Source::JsonLines, &row, *count);
                    }
                    None => {
                        run.problems
                            .insert("metrics.jsonl".into(), "a line is not a JSON object; it is skipped".into());
                    }
                },
            });
        }
        for (rank, tail) in &mut self.ranks {
            read_lines(tail, budget, &change, &mut |run, line| match line.map(json_row) {
                None => run.forget_rank(*rank),
                Some(Some(row)) => run.rank_row(*rank, &row),
                Some(None) => {}
            });
        }
        self.read_whole(store, &change);
    }

    /// Files that are read again when they change.
    fn read_whole(&mut self, store: &Store, change: &dyn Fn(&mut dyn FnMut(&mut Run))) {
        let mut newer = |path: &Option<PathBuf>, most: u64| -> Option<String> {
            let path = path.as_ref()?;
            let seen = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
            if self.times.get(path) == Some(&seen) {
                return None;
            }
            let file = store.open(path).ok()?;
            let time = file.metadata().and_then(|metadata| metadata.modified()).ok()?;
            let mut bytes = Vec::new();
            file.take(most + 1).read_to_end(&mut bytes).ok()?;
            if bytes.len() as u64 > most {
                return None;
            }
            self.times.insert(path.clone(), time);
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        if let Some(text) = newer(&self.csv, MAX_CSV) {
            let rows = csv_rows(&text);
            change(&mut |run| {
                run.forget(Source::Csv);
                rows.iter().enumerate().for_each(|(i, row)| run.row(Source::Csv, row, i as i64));
            });
        }
        let json = |text: Option<String>| serde_json::from_str::<Json>(&text?).ok();
        if let Some(config) = json(newer(&self.files.config, MAX_DESCRIPTION)) {
            change(&mut |run| {
                if let Some(hparams) = config.get("hparams").and_then(Json::as_object) {
                    hparams.iter().for_each(|(name, value)| {
                        run.hparams.insert(name.clone(), value.clone());
                    });
                }
                run.config = config.clone();
            });
        }
        if let Some(environment) = json(newer(&self.files.environment, MAX_DESCRIPTION)) {
            change(&mut |run| run.environment = environment.clone());
        }
        if let Some(status) = json(newer(&self.files.status, MAX_DESCRIPTION)) {
            change(&mut |run| run.status = status.clone());
        }
        if let Some(notes) = json(newer(&self.files.notes, MAX_DESCRIPTION)) {
            change(&mut |run| run.notes = notes.clone());
        }
        if let Some(text) = newer(&self.files.hparams, MAX_DESCRIPTION) {
            change(&mut |run| run.add_hparams(plain_yaml(&text)));
        }
    }
}

/// Reads new events of a file. Returns whether its earlier events are void.
fn read_events(
    tail: &mut Tail,
    parser: &mut EventParser,
    budget: &mut usize,
    name: &str,
    change: &dyn Fn(&mut dyn FnMut(&mut Run)),
) -> bool {
    loop {
        if *budget == 0 {
            return false;
        }
        let bytes = match tail.poll() {
            Grown::Nothing => return false,
            Grown::Reset => return true,
            Grown::Bytes(bytes) => bytes,
        };
        *budget = budget.saturating_sub(bytes.len());
        let parsed = parser.parse(&bytes, tail.offset());
        let stuck = parsed.consumed == 0 && (parsed.fault.is_some() || tail.is_end(bytes.len()));
        tail.consume(parsed.consumed, parsed.needed);
        let file = tail.path().to_owned();
        let label = file.file_name().map_or_else(|| name.to_owned(), |f| f.to_string_lossy().into_owned());
        let (mut values, mut fault) = (parsed.values, parsed.fault);
        if !values.is_empty() || fault.is_some() {
            change(&mut |run| {
                std::mem::take(&mut values).into_iter().for_each(|value| run.event(&file, value));
                match fault.take() {
                    Some(fault) => run.problems.insert(label.clone(), fault),
                    None => run.problems.remove(&label),
                };
            });
        }
        // An incomplete or damaged record is retried when the file changes.
        if stuck {
            tail.wait();
            return false;
        }
    }
}

/// Reads new complete lines of a file. The reader gets `None` if earlier lines are void.
fn read_lines(
    tail: &mut Tail,
    budget: &mut usize,
    change: &dyn Fn(&mut dyn FnMut(&mut Run)),
    reader: &mut dyn FnMut(&mut Run, Option<&[u8]>),
) {
    while *budget > 0 {
        match tail.poll() {
            Grown::Nothing => return,
            Grown::Reset => change(&mut |run| reader(run, None)),
            Grown::Bytes(bytes) => {
                *budget = budget.saturating_sub(bytes.len());
                let (_, end) = whole_lines(&bytes);
                if end > 0 {
                    change(&mut |run| whole_lines(&bytes).0.for_each(|line| reader(run, Some(line))));
                    tail.consume(end, 0);
                } else if bytes.len() >= MAX_LINE {
                    // A line without an end: drop the bytes read; the rest of it will not parse as JSON.
                    tail.consume(bytes.len(), 0);
                } else if tail.is_end(bytes.len()) {
                    tail.wait();
                    return;
                } else {
                    tail.consume(0, MAX_LINE);
                }
            }
        }
    }
}

/// The plain entries of a YAML file, as Lightning writes hyperparameters: `name: value`, without nesting.
fn plain_yaml(text: &str) -> serde_json::Map<String, Json> {
    let entries = text.lines().filter(|line| !line.starts_with([' ', '#', '-', '!'])).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let value = value.trim();
        let parsed =
            serde_json::from_str(value).unwrap_or_else(|_| Json::String(value.trim_matches(['\'', '"']).into()));
        Some((name.trim().to_owned(), parsed))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_train::loggers::tensorboard::EventWriter;
    use std::io::Write;

    fn values(store: &Store, run: &str, tag: &str) -> Vec<f64> {
        let state = store.lock();
        let run = state.runs.values().find(|r| r.name == run).expect("the run");
        let series = run.series.get(tag).map(|(_, series)| series.since(0, 1000).unwrap().1);
        series.unwrap_or_default().iter().map(|p| p.value).collect()
    }

    #[test]
    fn runs_are_read_as_they_grow_are_cut_and_vanish() {
        let root = std::env::temp_dir().join(format!("rushlight-store-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("a")).unwrap();
        let path = root.join("a/metrics.jsonl");
        std::fs::write(&path, "{\"step\":1,\"loss\":3}\nnoise\n{\"step\":2,\"lo").unwrap();
        std::fs::write(root.join("a/config.json"), r#"{"hparams": {"lr": 0.1}}"#).unwrap();
        let (store, mut watcher) = (Store::new(root.clone()), Watcher::default());
        assert!(!watcher.look(&store));
        assert_eq!(values(&store, "a", "loss"), [3.0]);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"ss\":\"NaN\"}\n").unwrap();
        watcher.look(&store);
        assert!(values(&store, "a", "loss")[1].is_nan());
        std::fs::write(&path, "{\"step\":1,\"loss\":9}\n").unwrap();
        watcher.look(&store);
        watcher.look(&store);
        assert_eq!(values(&store, "a", "loss"), [9.0]);
        {
            let mut events = EventWriter::create(root.join("b"), "", None).unwrap();
            events.scalar("acc", 0.5, 1).unwrap();
        }
        watcher.walked = None;
        watcher.look(&store);
        assert_eq!(values(&store, "b", "acc"), [0.5]);
        assert_eq!(store.lock().runs.values().find(|r| r.name == "a").unwrap().hparams["lr"], 0.1);
        // A damaged file is reported, and reading continues when it is repaired.
        let events = std::fs::read_dir(root.join("b")).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&events).unwrap();
        std::fs::write(&events, [&whole[..], &[1; 40]].concat()).unwrap();
        watcher.look(&store);
        assert_eq!(store.lock().runs.values().find(|r| r.name == "b").unwrap().problems.len(), 1);
        std::fs::remove_dir_all(root.join("a")).unwrap();
        watcher.walked = None;
        watcher.look(&store);
        assert_eq!(store.lock().runs.len(), 1);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn hyperparameters_of_lightning() {
        let found = plain_yaml("lr: 0.1\nname: 'x'\nnested:\n  a: 1\n# no\nflag: true\n");
        assert_eq!(Json::Object(found), serde_json::json!({"lr": 0.1, "name": "x", "flag": true}));
    }
}
