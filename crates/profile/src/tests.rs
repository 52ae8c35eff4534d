//! Nesting, tables, traces and summaries, of recordings made by hand.

use crate::record::{Category, Details, Event, MemoryReading, MemorySample, Options, Place, Trace};
use crate::summary::{Part, Summary, TraceEvent, read};
use std::path::PathBuf;

const MAIN: Place = Place::Thread(7);
const STREAM: Place = Place::Device("cuda", 0, 3);

fn event(name: &'static str, category: Category, start: u64, end: u64, place: Place) -> Event {
    Event { name: name.into(), category, start: start * 1000, end: end * 1000, place, details: None }
}

fn with(mut event: Event, f: impl FnOnce(&mut Details)) -> Event {
    f(event.details.get_or_insert_default());
    event
}

/// A step: an op that launches a kernel, another within it, a copy.
fn trace() -> Trace {
    let mut events = vec![
        event("ProfilerStep#4", Category::Annotation, 0, 100, MAIN),
        with(event("aten::linear", Category::Op, 10, 50, MAIN), |d| {
            d.shapes = vec![vec![2, 3], vec![4, 3]];
            d.dtypes = vec!["float32", "float32"];
            d.memory = [300, 0];
        }),
        with(event("rushlight::matmul", Category::Op, 20, 40, MAIN), |d| {
            d.flops = 48;
            d.memory = [100, 0];
        }),
        with(event("cuLaunchKernel", Category::Runtime, 25, 30, MAIN), |d| d.correlation = 9),
        with(event("gemm", Category::Kernel, 60, 90, STREAM), |d| {
            d.correlation = 9;
            d.grid = [4, 1, 1];
        }),
        event("other thread", Category::Op, 15, 45, Place::Thread(8)),
    ];
    events.sort_by_key(|e| (e.start, std::cmp::Reverse(e.end)));
    let reading = MemoryReading { allocated: 300, reserved: 400 };
    Trace {
        events,
        memory: vec![MemorySample { time: 30_000, thread: 7, device: false, change: 300, reading }],
        threads: [(7, "main".to_string()), (8, String::new())].into(),
        begin: 0,
        end: 100_000,
        dropped: 0,
        options: Options { shapes: true, memory: true, devices: true },
    }
}

#[test]
fn totals_know_what_lies_within() {
    let averages = trace().key_averages(false);
    let of = |name: &str| averages.iter().find(|a| a.name == name).unwrap_or_else(|| panic!("no row {name}")).clone();
    let linear = of("aten::linear");
    assert_eq!((linear.cpu_total, linear.self_cpu), (40_000, 20_000));
    assert_eq!((linear.device_total, linear.self_device), (30_000, 0));
    assert_eq!((linear.memory[0], linear.self_memory[0], linear.flops), (300, 200, 48));
    let matmul = of("rushlight::matmul");
    assert_eq!((matmul.self_cpu, matmul.self_device), (20_000, 30_000));
    assert_eq!(of("ProfilerStep*").self_cpu, 60_000);
    assert_eq!(of("other thread").self_cpu, 30_000);
    let kernel = of("gemm");
    assert!(kernel.is_device && kernel.cpu_total == 0 && kernel.device_total == 30_000);
    // Driver calls are a part of the op that made them.
    assert!(averages.iter().all(|a| a.name != "cuLaunchKernel"));
    assert_eq!(trace().key_averages(true).iter().find(|a| a.name == "aten::linear").unwrap().shapes.len(), 2);
}

#[test]
fn the_table_has_pytorchs_columns() {
    let table = trace().table("cpu_time_total", 3);
    for column in
        ["Self CPU %", "CPU total", "CPU time avg", "Self CUDA", "CUDA total", "CPU Mem", "# of Calls", "Total MFLOPs"]
    {
        assert!(table.contains(column), "{column} is missing:\n{table}");
    }
    let first = table.lines().nth(3).unwrap();
    assert!(first.starts_with("ProfilerStep*"), "{table}");
    assert_eq!(table.lines().filter(|l| l.starts_with("---")).count(), 3);
    assert_eq!(table.lines().count(), 3 + 3 + 1 + 2, "{table}");
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rushlight-profile-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn chrome_traces_are_read_back() {
    let folder = folder("chrome");
    for name in ["trace.json", "trace.json.gz"] {
        let path = folder.join(name);
        trace().export_chrome_trace(&path).unwrap();
        let events = read(&path).unwrap();
        assert_eq!(events.len(), trace().events.len());
        let kernel = events.iter().find(|e| e.name == "gemm").unwrap();
        assert_eq!((kernel.ts, kernel.dur, kernel.category.as_str(), kernel.tid.as_str()), (60.0, 30.0, "kernel", "3"));
    }
    let text = std::fs::read_to_string(folder.join("trace.json")).unwrap();
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = whole["traceEvents"].as_array().unwrap();
    let linear = all.iter().find(|e| e["name"] == "aten::linear").unwrap();
    assert_eq!(linear["args"]["Input Dims"], serde_json::json!([[2, 3], [4, 3]]));
    assert_eq!(all.iter().filter(|e| e["name"] == "ac2g").count(), 2);
    assert_eq!(all.iter().find(|e| e["name"] == "[memory]").unwrap()["args"]["Total Allocated"], 300);
    assert!(trace().export_chrome_trace(folder.join("no such folder/trace.json")).is_err());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left behind");
    for name in ["memory.html", "memory.json", "memory.json.gz"] {
        trace().export_memory_timeline(folder.join(name), false).unwrap();
    }
    assert_eq!(std::fs::read_to_string(folder.join("memory.json")).unwrap(), "[[30],[300]]");
    assert!(trace().export_memory_timeline(folder.join("memory.txt"), false).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

fn span(name: &str, category: &str, tid: &str, ts: f64, dur: f64) -> TraceEvent {
    TraceEvent { name: name.into(), category: category.into(), pid: "1".into(), tid: tid.into(), ts, dur }
}

#[test]
fn a_step_is_divided_into_its_parts() {
    let mut events = vec![
        span("ProfilerStep#0", "user_annotation", "1", 0.0, 1000.0),
        span("enumerate(DataLoader)#next", "user_annotation", "1", 0.0, 300.0),
        span("aten::linear", "cpu_op", "1", 300.0, 100.0),
        span("aten::mm", "cpu_op", "1", 310.0, 50.0),
        // The backward pass on a thread of its own.
        span("autograd::engine::evaluate_function: MmBackward0", "cpu_op", "2", 420.0, 200.0),
        span("Optimizer.step#SGD.step", "user_annotation", "1", 700.0, 100.0),
        span("aten::add_", "cpu_op", "1", 710.0, 50.0),
        span("aten::item", "cpu_op", "1", 850.0, 100.0),
        span("kernel", "kernel", "7", 400.0, 200.0),
        span("ncclDevKernel_AllReduce", "kernel", "8", 550.0, 150.0),
        span("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", "7", 700.0, 60.0),
    ];
    events.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
    let summary = Summary::of(&events);
    let part = |part: Part| summary.parts.get(&part).copied().unwrap_or(0.0);
    assert_eq!((part(Part::Data), part(Part::Forward), part(Part::Backward)), (300.0, 100.0, 200.0));
    assert_eq!((part(Part::Optimizer), part(Part::Waiting), part(Part::Program)), (100.0, 100.0, 200.0));
    assert_eq!((summary.device_busy, summary.exposed_communication, summary.copies), (360.0, 100.0, 60.0));
    let text = summary.to_string();
    for wanted in ["num_workers", "idle 64 %", "only collectives", "pin_memory", "aten::linear", "ncclDevKernel"] {
        assert!(text.contains(wanted), "{wanted} is missing:\n{text}");
    }
}

/// A trace that PyTorch wrote (`tests/fixtures/make_trace.py`).
#[test]
fn pytorchs_own_traces_are_summed_up() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/traces/pytorch.json.gz");
    let summary = Summary::read(path).unwrap();
    assert_eq!((summary.steps, summary.has_device), (2, false));
    for part in [Part::Data, Part::Forward, Part::Backward, Part::Optimizer, Part::Program] {
        assert!(summary.parts[&part] > 0.0, "{part:?}: {:?}", summary.parts);
    }
    let total: f64 = summary.parts.values().sum();
    assert!((total - summary.wall).abs() < 0.01 * summary.wall, "{total} of {}", summary.wall);
    assert!(summary.ops.iter().any(|op| op.name == "aten::addmm" && op.count == 4));
}

#[test]
fn files_that_are_no_traces_are_errors() {
    let folder = folder("hostile");
    let path = folder.join("trace.json");
    let texts: [&[u8]; 10] = [
        b"",
        b"{",
        b"[]",
        b"{\"traceEvents\": []}",
        b"{\"events\": []}",
        b"{\"traceEvents\": 3}",
        b"{\"traceEvents\": [3]}",
        b"{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1e999}]}",
        b"\x1f\x8b\x08\x00 no such thing",
        b"[{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1, \"dur\": 2}",
    ];
    for text in texts {
        std::fs::write(&path, text).unwrap();
        assert!(Summary::read(&path).is_err(), "{}", String::from_utf8_lossy(text));
    }
    std::fs::write(&path, format!("{{\"a\": {}", "[".repeat(100_000))).unwrap();
    assert!(Summary::read(&path).is_err());
    // Odd, and yet traces.
    for text in [
        "[{\"ph\": \"X\", \"name\": 3, \"ts\": \"5\", \"dur\": 0}]",
        "[{\"ph\": \"X\", \"dur\": -1}, {\"ph\": \"X\", \"name\": \"a\", \"ts\": -4, \"dur\": 1, \"pid\": null, \"tid\": [1]}]",
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(!Summary::read(&path).unwrap().to_string().is_empty(), "{text}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
