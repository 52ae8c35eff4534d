//! Totals by name, and the table.

use crate::record::{Category, Event, Place, Trace};
use std::collections::HashMap;
use std::fmt::Write;

/// Totals of all spans with one name, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Average {
    /// The name.
    pub name: String,
    /// Shapes of the inputs, if spans were grouped by them.
    pub shapes: Vec<Vec<usize>>,
    /// How many spans.
    pub count: usize,
    /// Time on the host.
    pub cpu_total: u64,
    /// The same without spans within.
    pub self_cpu: u64,
    /// Time of the kernels that were launched within.
    pub device_total: u64,
    /// The same without spans within.
    pub self_device: u64,
    /// Change of host and device memory in use.
    pub memory: [i64; 2],
    /// The same without spans within.
    pub self_memory: [i64; 2],
    /// Multiplications and additions.
    pub flops: u64,
    /// Whether it is work of a device.
    pub is_device: bool,
    /// Whether the program gave the name.
    pub is_annotation: bool,
}

/// Time of a span's children.
#[derive(Clone, Copy, Default)]
pub(crate) struct Nested {
    /// The span around it.
    pub(crate) parent: Option<usize>,
    /// Host time of the spans directly within.
    pub(crate) children: u64,
    /// Kernels launched within, at any depth.
    pub(crate) device: u64,
    /// Kernels launched by spans directly within.
    pub(crate) device_children: u64,
    /// Memory that the spans directly within account for.
    pub(crate) memory_children: [i64; 2],
    /// Operations of this span and all within.
    pub(crate) flops: u64,
}

impl Trace {
    /// How spans are within each other: one entry for each event.
    pub(crate) fn nesting(&self) -> Vec<Nested> {
        let mut nested = vec![Nested::default(); self.events.len()];
        let mut kernels: HashMap<u64, u64> = HashMap::new();
        for event in self.events.iter().filter(|e| e.category.is_device()) {
            if let Some(details) = event.details.as_ref().filter(|d| d.correlation != 0) {
                *kernels.entry(details.correlation).or_default() += event.duration();
            }
        }
        let mut open: HashMap<Place, Vec<usize>> = HashMap::new();
        for (i, event) in self.events.iter().enumerate() {
            if event.category.is_device() {
                nested[i].device = event.duration();
                continue;
            }
            let stack = open.entry(event.place).or_default();
            while stack.last().is_some_and(|&top| self.events[top].end < event.end.max(event.start + 1)) {
                stack.pop();
            }
            nested[i].parent = stack.last().copied();
            if let Some(details) = &event.details {
                nested[i].flops = details.flops;
                if event.category == Category::Runtime {
                    nested[i].device = kernels.get(&details.correlation).copied().unwrap_or(0);
                }
            }
            stack.push(i);
        }
        // Events are in the order of their begin, so children come after their parents.
        for i in (0..nested.len()).rev() {
            let Some(parent) = nested[i].parent else { continue };
            let own = nested[i];
            let event = &self.events[i];
            nested[parent].flops += own.flops;
            nested[parent].device += own.device;
            if event.category != Category::Runtime {
                nested[parent].children += event.duration();
                nested[parent].device_children += own.device;
                let memory = event.details.as_ref().map_or([0, 0], |d| d.memory);
                for (sum, part) in nested[parent].memory_children.iter_mut().zip(memory) {
                    *sum += part;
                }
            }
        }
        nested
    }

    /// Totals by name, and by the shapes of the inputs if `by_shape` is set, in the order of first appearance. Driver
    /// calls count towards the enclosing spans.
    pub fn key_averages(&self, by_shape: bool) -> Vec<Average> {
        let nested = self.nesting();
        let mut places: HashMap<(String, Vec<Vec<usize>>, bool), usize> = HashMap::new();
        let mut averages: Vec<Average> = Vec::new();
        for (event, nested) in self.events.iter().zip(&nested) {
            if event.category == Category::Runtime && nested.parent.is_some() {
                continue;
            }
            let shapes = match &event.details {
                Some(details) if by_shape => details.shapes.clone(),
                _ => Vec::new(),
            };
            let is_device = event.category.is_device();
            let name = base_name(event);
            let at = *places.entry((name.clone(), shapes.clone(), is_device)).or_insert_with(|| {
                let is_annotation = event.category == Category::Annotation;
                averages.push(Average { name, shapes, is_device, is_annotation, ..Average::default() });
                averages.len() - 1
            });
            let average = &mut averages[at];
            average.count += 1;
            average.flops += nested.flops;
            average.device_total += nested.device;
            average.self_device += nested.device.saturating_sub(nested.device_children);
            if !is_device {
                average.cpu_total += event.duration();
                average.self_cpu += event.duration().saturating_sub(nested.children);
                let memory = event.details.as_ref().map_or([0, 0], |d| d.memory);
                for i in 0..2 {
                    average.memory[i] += memory[i];
                    average.self_memory[i] += memory[i] - nested.memory_children[i];
                }
            }
        }
        averages
    }

    /// The table of [`key_averages`](Trace::key_averages), sorted by one of [`SORT_KEYS`], of at most `rows` rows.
    pub fn table(&self, sort_by: &str, rows: usize) -> String {
        table(&self.key_averages(false), sort_by, rows, &self.device_label())
    }

    /// The device column's heading: `CUDA`, `XPU`, or `Device` if there are several kinds or none.
    pub fn device_label(&self) -> String {
        let mut kinds: Vec<&str> = self
            .events
            .iter()
            .filter_map(|e| match e.place {
                Place::Device(kind, ..) => Some(kind),
                Place::Thread(_) => None,
            })
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        match kinds[..] {
            [kind] => kind.to_uppercase(),
            _ => "Device".into(),
        }
    }
}

/// A step's number is not a part of its name: all steps are one row.
fn base_name(event: &Event) -> String {
    match event.name.strip_prefix("ProfilerStep#") {
        Some(_) => "ProfilerStep*".into(),
        None => event.name.to_string(),
    }
}

/// Columns that a table can be sorted by.
pub const SORT_KEYS: [&str; 11] = [
    "cpu_time",
    "cpu_time_total",
    "self_cpu_time_total",
    "device_time",
    "device_time_total",
    "self_device_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "count",
];

fn key(average: &Average, sort_by: &str) -> i64 {
    let count = average.count.max(1) as i64;
    match sort_by {
        "cpu_time" => average.cpu_total as i64 / count,
        "self_cpu_time_total" => average.self_cpu as i64,
        "device_time" => average.device_total as i64 / count,
        "device_time_total" => average.device_total as i64,
        "self_device_time_total" => average.self_device as i64,
        "cpu_memory_usage" => average.memory[0],
        "self_cpu_memory_usage" => average.self_memory[0],
        "device_memory_usage" => average.memory[1],
        "self_device_memory_usage" => average.self_memory[1],
        "count" => average.count as i64,
        _ => average.cpu_total as i64,
    }
}

/// A time as PyTorch writes it.
pub(crate) fn time(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    match us {
        us if us >= 1e6 => format!("{:.3}s", us / 1e6),
        us if us >= 1e3 => format!("{:.3}ms", us / 1e3),
        us => format!("{us:.3}us"),
    }
}

/// Bytes as PyTorch writes them.
fn bytes(bytes: i64) -> String {
    let size = bytes.unsigned_abs() as f64;
    let sign = if bytes < 0 { "-" } else { "" };
    match size {
        size if size >= 1073741824.0 => format!("{sign}{:.2} GB", size / 1073741824.0),
        size if size >= 1048576.0 => format!("{sign}{:.2} MB", size / 1048576.0),
        size if size >= 1024.0 => format!("{sign}{:.2} KB", size / 1024.0),
        _ => format!("{bytes} B"),
    }
}

/// Rows as text with PyTorch's columns, the greatest first. Columns that hold nothing are left out.
pub fn table(averages: &[Average], sort_by: &str, rows: usize, device: &str) -> String {
    let mut sorted: Vec<&Average> = averages.iter().collect();
    sorted.sort_by_key(|a| std::cmp::Reverse(key(a, sort_by)));
    let cpu: u64 = averages.iter().map(|a| a.self_cpu).sum();
    let kernels: u64 = averages.iter().filter(|a| a.is_device).map(|a| a.self_device).sum();
    let has = |f: &dyn Fn(&Average) -> bool| averages.iter().any(f);
    let (has_device, has_flops) = (has(&|a| a.device_total > 0), has(&|a| a.flops > 0));
    let has_memory = [0, 1].map(|i| has(&|a| a.memory[i] != 0 || a.self_memory[i] != 0));
    let has_shapes = has(&|a| !a.shapes.is_empty());
    let share = |part: u64, whole: u64| format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64);
    let each = |total: u64, count: usize| time(total / count.max(1) as u64);
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    let sorted = &sorted[..rows.min(sorted.len())];
    let mut add = |title: &str, f: &dyn Fn(&Average) -> String| {
        columns.push((title.to_string(), sorted.iter().map(|a| f(a)).collect()));
    };
    add("Name", &|a| shortened(&a.name, 55));
    add("Self CPU %", &|a| share(a.self_cpu, cpu));
    add("Self CPU", &|a| time(a.self_cpu));
    add("CPU total %", &|a| share(a.cpu_total, cpu));
    add("CPU total", &|a| time(a.cpu_total));
    add("CPU time avg", &|a| each(a.cpu_total, a.count));
    if has_device {
        add(&format!("Self {device}"), &|a| time(a.self_device));
        add(&format!("Self {device} %"), &|a| share(a.self_device, kernels));
        add(&format!("{device} total"), &|a| time(a.device_total));
        add(&format!("{device} time avg"), &|a| each(a.device_total, a.count));
    }
    for (i, place) in ["CPU", device].into_iter().enumerate() {
        if has_memory[i] {
            add(&format!("{place} Mem"), &|a| bytes(a.memory[i]));
            add(&format!("Self {place} Mem"), &|a| bytes(a.self_memory[i]));
        }
    }
    add("# of Calls", &|a| a.count.to_string());
    if has_shapes {
        add("Input Shapes", &|a| format!("{:?}", a.shapes));
    }
    if has_flops {
        add("Total MFLOPs", &|a| match a.flops {
            0 => "--".into(),
            flops => format!("{:.3}", flops as f64 / 1e6),
        });
    }
    let mut out = String::new();
    let widths: Vec<usize> = columns
        .iter()
        .map(|(title, cells)| cells.iter().map(|c| c.chars().count()).max().unwrap_or(0).max(title.chars().count()))
        .collect();
    let rule: String = widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join("  ");
    let line = |out: &mut String, cells: &mut dyn Iterator<Item = &str>| {
        for (i, (cell, width)) in cells.zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            _ = if i == 0 { write!(out, "{gap}{cell:<width$}") } else { write!(out, "{gap}{cell:>width$}") };
        }
        out.push('\n');
    };
    _ = writeln!(out, "{rule}");
    line(&mut out, &mut columns.iter().map(|(title, _)| title.as_str()));
    _ = writeln!(out, "{rule}");
    for row in 0..sorted.len() {
        line(&mut out, &mut columns.iter().map(|(_, cells)| cells[row].as_str()));
    }
    _ = writeln!(out, "{rule}");
    _ = writeln!(out, "Self CPU time total: {}", time(cpu));
    if has_device {
        _ = writeln!(out, "Self {device} time total: {}", time(kernels));
    }
    out
}

fn shortened(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 3).chain("...".chars()).collect(),
        false => name.to_string(),
    }
}
