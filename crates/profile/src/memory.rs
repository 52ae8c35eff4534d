//! The memory timeline: bytes in use over time, of the host or of the accelerators.

use crate::record::Trace;
use flate2::{Compression, write::GzEncoder};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

impl Trace {
    /// Times (microseconds after the begin) and bytes in use of the host, or of the accelerators together.
    pub fn memory_timeline(&self, device: bool) -> (Vec<u64>, Vec<u64>) {
        let readings = self.memory.iter().filter(|s| s.device == device);
        readings.map(|s| (s.time.saturating_sub(self.begin) / 1000, s.reading.allocated as u64)).unzip()
    }

    /// Writes the memory timeline: a page with a curve for `.html`, two lists (microseconds, bytes) for `.json` and
    /// `.json.gz`.
    pub fn export_memory_timeline(&self, path: impl AsRef<Path>, device: bool) -> io::Result<()> {
        let path = path.as_ref();
        if !self.options.memory {
            return Err(io::Error::other("the memory timeline needs profile_memory(true)"));
        }
        let (times, sizes) = self.memory_timeline(device);
        let name = path.to_string_lossy();
        if name.ends_with(".html") {
            std::fs::write(path, page(&times, &sizes, if device { "device" } else { "host" }))
        } else if name.ends_with(".json") {
            std::fs::write(path, serde_json::json!([times, sizes]).to_string())
        } else if name.ends_with(".json.gz") {
            let mut out = GzEncoder::new(std::fs::File::create(path)?, Compression::default());
            out.write_all(serde_json::json!([times, sizes]).to_string().as_bytes())?;
            out.finish().map(drop)
        } else {
            Err(io::Error::other(format!("{name}: the memory timeline is written as .html, .json or .json.gz")))
        }
    }
}

/// A page without scripts: the curve as a drawing.
fn page(times: &[u64], sizes: &[u64], place: &str) -> String {
    let last = times.last().copied().unwrap_or(0).max(1) as f64;
    let peak = sizes.iter().copied().max().unwrap_or(0);
    let scale = |size: u64| 380.0 - 360.0 * size as f64 / peak.max(1) as f64;
    let mut points = String::from("60,380");
    let mut before = 380.0;
    for (&time, &size) in times.iter().zip(sizes) {
        let x = 60.0 + 920.0 * time as f64 / last;
        _ = write!(points, " {x:.1},{before:.1} {x:.1},{:.1}", scale(size));
        before = scale(size);
    }
    _ = write!(points, " 980,{before:.1} 980,380");
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    format!(
        "<!doctype html><meta charset=utf-8><title>Memory in use</title><style>body{{font-family:sans-serif;margin:2em}}</style>\
         <h1>Memory in use on the {place}</h1><p>Peak {:.1} MiB over {:.1} ms, {} readings.</p>\
         <svg viewBox=\"0 0 1000 420\" width=\"100%\" role=img aria-label=\"memory over time\"><polygon points=\"{points}\" fill=\"#9ecae1\" stroke=\"#3182bd\"/>\
         <text x=0 y=25 font-size=12>{:.0} MiB</text><text x=0 y=380 font-size=12>0</text><text x=940 y=400 font-size=12>{:.1} ms</text></svg>",
        mib(peak),
        last / 1e3,
        times.len(),
        mib(peak),
        last / 1e3,
    )
}
