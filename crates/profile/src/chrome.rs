//! Chrome traces with the names and fields of PyTorch's, so that the same viewers and scripts read them.

use crate::record::{Category, Event, Place, Trace};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

impl Trace {
    /// Writes the trace to a file, compressed if its name ends in `.gz`. The file appears whole or not at all.
    pub fn export_chrome_trace(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other(format!("{} is not the name of a file", path.display())))?;
        let mut partial = path.to_path_buf();
        partial.set_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
        let written = File::create(&partial).and_then(|file| {
            if path.extension().is_some_and(|e| e == "gz") {
                let mut out = GzEncoder::new(BufWriter::new(file), Compression::fast());
                self.write_chrome(&mut out)?;
                out.finish()?.flush()
            } else {
                let mut out = BufWriter::new(file);
                self.write_chrome(&mut out)?;
                out.flush()
            }
        });
        match written.and_then(|()| std::fs::rename(&partial, path)) {
            Ok(()) => Ok(()),
            Err(e) => {
                _ = std::fs::remove_file(&partial);
                Err(io::Error::new(e.kind(), format!("the trace {} cannot be written: {e}", path.display())))
            }
        }
    }

    /// Writes the trace as JSON.
    pub fn write_chrome(&self, out: &mut impl Write) -> io::Result<()> {
        let pid = std::process::id();
        // Times are microseconds after this base, as a number of nanoseconds since 1970 has too many digits for JSON's
        // readers.
        let base = self.begin;
        let head = json!({
            "schemaVersion": 1,
            "record_shapes": u8::from(self.options.shapes),
            "profile_memory": u8::from(self.options.memory),
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base,
            "producer": concat!("rushlight ", env!("CARGO_PKG_VERSION")),
            "distributedInfo": rank_from_environment(),
            "droppedEvents": self.dropped,
        });
        let head = head.to_string();
        write!(out, "{},\n\"traceEvents\": [", head.trim_end_matches('}'))?;
        let mut first = true;
        let mut put = |out: &mut dyn Write, event: Value| {
            let comma = if std::mem::take(&mut first) { "" } else { "," };
            write!(out, "{comma}\n{event}")
        };
        let us = |time: u64| time.saturating_sub(base) as f64 / 1e3;
        let (mut kinds, mut streams) = (Kinds::default(), BTreeSet::new());
        let mut launches: BTreeMap<u64, (u32, u64, f64)> = BTreeMap::new();
        for (i, event) in self.events.iter().enumerate() {
            let (process, thread) = match event.place {
                Place::Thread(thread) => (Value::from(pid), thread),
                Place::Device(kind, index, stream) => {
                    let process = kinds.process(kind, index);
                    streams.insert((process, stream));
                    (Value::from(process), stream)
                }
            };
            let correlation = event.details.as_ref().map_or(0, |d| d.correlation);
            if event.category == Category::Runtime && correlation != 0 {
                launches.insert(correlation, (pid, thread, us(event.start)));
            }
            put(
                out,
                json!({
                    "ph": "X", "cat": event.category.name(), "name": event.name, "pid": process, "tid": thread,
                    "ts": us(event.start), "dur": event.duration() as f64 / 1e3, "args": arguments(event, i),
                }),
            )?;
        }
        // Arrows from launches to kernels.
        for event in self.events.iter().filter(|e| e.category.is_device()) {
            let (Some(details), Place::Device(kind, index, stream)) = (&event.details, event.place) else { continue };
            let Some(&(process, thread, start)) = launches.get(&details.correlation) else { continue };
            let id = details.correlation;
            put(
                out,
                json!({"ph": "s", "id": id, "pid": process, "tid": thread, "ts": start, "cat": "ac2g", "name": "ac2g"}),
            )?;
            put(
                out,
                json!({
                    "ph": "f", "id": id, "pid": kinds.process(kind, index), "tid": stream, "ts": us(event.start), "cat": "ac2g",
                    "name": "ac2g", "bp": "e",
                }),
            )?;
        }
        for sample in &self.memory {
            put(
                out,
                json!({
                    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": sample.thread, "ts": us(sample.time),
                    "args": {
                        "Total Reserved": sample.reading.reserved, "Total Allocated": sample.reading.allocated, "Bytes": sample.change,
                        "Addr": 0, "Device Id": if sample.device { 0 } else { -1 }, "Device Type": u8::from(sample.device),
                    },
                }),
            )?;
        }
        let program = std::env::args_os().next().map_or_else(String::new, |p| {
            Path::new(&p).file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
        });
        put(
            out,
            json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0.0, "args": {"name": program}}),
        )?;
        put(
            out,
            json!({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0.0, "args": {"labels": "CPU"}}),
        )?;
        put(
            out,
            json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0.0, "args": {"sort_index": pid}}),
        )?;
        for (thread, name) in &self.threads {
            let name = if name.is_empty() { format!("thread {thread}") } else { format!("thread {thread} ({name})") };
            put(
                out,
                json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "ts": 0.0, "args": {"name": name}}),
            )?;
        }
        for (process, label) in kinds.labels() {
            put(
                out,
                json!({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0.0, "args": {"name": label}}),
            )?;
            put(
                out,
                json!({"ph": "M", "name": "process_labels", "pid": process, "tid": 0, "ts": 0.0, "args": {"labels": label}}),
            )?;
        }
        for (process, stream) in streams {
            let name = format!("stream {stream}");
            put(
                out,
                json!({"ph": "M", "name": "thread_name", "pid": process, "tid": stream, "ts": 0.0, "args": {"name": name}}),
            )?;
        }
        put(
            out,
            json!({
                "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": us(self.end), "args": {},
            }),
        )?;
        write!(out, "\n]}}")
    }
}

/// Devices in the order they appear: each is a process of the trace, as in PyTorch's.
#[derive(Default)]
struct Kinds(Vec<(&'static str, usize)>);

impl Kinds {
    fn process(&mut self, kind: &'static str, index: usize) -> u64 {
        // The device's own index where one kind of device is there, as viewers expect; others follow.
        if self.0.iter().all(|known| *known != (kind, index)) {
            self.0.push((kind, index));
        }
        let kinds = self.0.iter().map(|(k, _)| *k).fold(Vec::new(), |mut seen: Vec<&str>, k| {
            if !seen.contains(&k) {
                seen.push(k);
            }
            seen
        });
        let at = kinds.iter().position(|k| *k == kind).unwrap_or(0);
        (at * 64 + index) as u64
    }

    fn labels(&mut self) -> Vec<(u64, String)> {
        let all = self.0.clone();
        all.into_iter().map(|(kind, index)| (self.process(kind, index), format!("{kind}:{index}"))).collect()
    }
}

fn arguments(event: &Event, index: usize) -> Value {
    let mut out = serde_json::Map::new();
    out.insert("External id".into(), json!(index + 1));
    let Some(details) = &event.details else { return Value::Object(out) };
    if !details.shapes.is_empty() {
        out.insert("Input Dims".into(), json!(details.shapes));
        out.insert("Input type".into(), json!(details.dtypes));
    }
    if details.flops != 0 {
        out.insert("flops".into(), json!(details.flops));
    }
    if details.bytes != 0 {
        out.insert("bytes".into(), json!(details.bytes));
    }
    if details.memory != [0, 0] {
        out.insert("memory change".into(), json!(details.memory));
    }
    if !details.stack.is_empty() {
        out.insert("Call stack".into(), json!(details.stack.join(";")));
    }
    if details.correlation != 0 {
        out.insert("correlation".into(), json!(details.correlation));
    }
    if let Place::Device(_, device, stream) = event.place {
        out.insert("device".into(), json!(device));
        out.insert("stream".into(), json!(stream));
        if event.category == Category::Kernel {
            out.insert("grid".into(), json!(details.grid));
            out.insert("block".into(), json!(details.block));
            out.insert("registers per thread".into(), json!(details.registers));
            out.insert("shared memory".into(), json!(details.shared));
        }
    }
    Value::Object(out)
}

/// Rank and number of ranks, if the launcher set them.
fn rank_from_environment() -> Value {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match (number("RANK"), number("WORLD_SIZE")) {
        (Some(rank), Some(world)) => json!({"rank": rank, "world_size": world}),
        _ => json!({}),
    }
}
