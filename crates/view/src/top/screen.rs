//! The screen of `rushlight top`, as lines of text.

use rushlight_monitor::{Gpu, Host, HostProcess, Sample};
use std::collections::{HashMap, VecDeque};

/// Number of past utilisation samples shown behind a GPU.
const HISTORY: usize = 60;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A machine.
#[derive(Clone, Default)]
pub struct Node {
    /// Its figures.
    pub sample: Sample,
    /// Its busiest processes.
    pub processes: Vec<HostProcess>,
}

/// Draws nodes, with the utilisation of the last minute.
pub struct Screen {
    color: bool,
    history: HashMap<(String, String), VecDeque<f64>>,
}

#[derive(Clone, Copy)]
enum Color {
    Dim,
    Bold,
    /// Green, amber or red, by utilisation.
    Share(f64),
}

/// The block for a share of 100.
fn block(percent: f64) -> char {
    BLOCKS[((percent / 100.0 * 7.0).round().clamp(0.0, 7.0)) as usize]
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Removes control characters: names of devices and processes could contain terminal commands.
fn clean(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

fn rounded(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| format!("– {unit}"), |value| format!("{value:.0} {unit}"))
}

impl Screen {
    /// With or without colours.
    pub fn new(color: bool) -> Self {
        Self { color, history: HashMap::new() }
    }

    /// Records the utilisation of a new sample.
    pub fn note(&mut self, nodes: &[Node]) {
        for (node, gpu) in nodes.iter().flat_map(|node| node.sample.gpus.iter().map(move |gpu| (node, gpu))) {
            let history = self.history.entry(key(node, gpu)).or_default();
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(gpu.utilisation.unwrap_or(0.0));
        }
    }

    fn paint(&self, color: Color, text: &str) -> String {
        let code = match color {
            Color::Dim => "2",
            Color::Bold => "1",
            Color::Share(s) if s >= 0.9 => "31",
            Color::Share(s) if s >= 0.6 => "33",
            Color::Share(_) => "32",
        };
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A bar of `width` columns.
    fn bar(&self, share: f64, width: usize) -> String {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let full = (share * width as f64).round() as usize;
        self.paint(Color::Share(share), &"━".repeat(full)) + &self.paint(Color::Dim, &"─".repeat(width - full))
    }

    /// The lines of all nodes, each limited to a number of columns.
    pub fn lines(&self, nodes: &[Node], columns: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            if i > 0 {
                lines.push(String::new());
            }
            self.host(&node.sample.host, columns, &mut lines);
            for gpu in &node.sample.gpus {
                self.gpu(node, gpu, columns, &mut lines);
            }
            for problem in &node.sample.problems {
                lines.push(format!("! {problem}"));
            }
            if node.sample.gpus.is_empty() && node.sample.problems.is_empty() {
                let text = "no GPU: neither NVML, ROCm SMI nor Level Zero Sysman finds one (`rushlight doctor -v`)";
                lines.push(self.paint(Color::Dim, text));
            }
            if !node.processes.is_empty() {
                lines.push(self.paint(Color::Dim, "      pid    cpu %      memory  process"));
            }
            for process in &node.processes {
                let memory = gib(process.memory);
                let name = clean(&process.name, columns.saturating_sub(38));
                lines.push(format!("{:>9} {:>8.0} {memory:>7.2} GiB  {name}", process.pid, process.cpu));
            }
        }
        lines.iter().map(|line| cut(line, columns)).collect()
    }

    fn host(&self, host: &Host, columns: usize, lines: &mut Vec<String>) {
        let load = host.load.map_or_else(String::new, |load| format!("  load {load:.2}"));
        let title = format!("{}{load}", self.paint(Color::Bold, &clean(&host.name, 40)));
        lines.push(format!("{title}  {}", self.paint(Color::Dim, &clean(&host.cpu, 60))));
        let width = if columns >= 90 { 18 } else { 10 };
        let mut parts = Vec::new();
        if let Some(percent) = host.utilisation() {
            parts.push(format!("cpu {} {percent:>3.0} %", self.bar(percent / 100.0, width)));
        }
        if let (Some(used), Some(total)) = (host.memory_used, host.memory_total) {
            let bar = self.bar(used as f64 / total.max(1) as f64, width);
            parts.push(format!("memory {bar} {:.1} / {:.1} GiB", gib(used), gib(total)));
        }
        if let Some(celsius) = host.temperature {
            parts.push(format!("{celsius:.0} °C"));
        }
        if let Some(mhz) = host.clock {
            parts.push(format!("{mhz:.0} MHz"));
        }
        lines.push(format!("  {}", parts.join("   ")));
        // One block for each processor.
        for row in host.cores.chunks(columns.saturating_sub(4).clamp(8, 128)) {
            let blocks: String = row
                .iter()
                .map(|percent| self.paint(Color::Share(percent / 100.0), &block(*percent).to_string()))
                .collect();
            lines.push(format!("  {blocks}"));
        }
    }

    fn gpu(&self, node: &Node, gpu: &Gpu, columns: usize, lines: &mut Vec<String>) {
        let clocks = format!("{}  memory {}", rounded(gpu.clock, "MHz"), rounded(gpu.memory_clock, "MHz"));
        let title = format!("gpu {}", gpu.index);
        lines.push(format!(
            "{}  {}  {}",
            self.paint(Color::Bold, &title),
            clean(&gpu.name, 48),
            self.paint(Color::Dim, &clocks)
        ));
        let width = if columns >= 90 { 18 } else { 10 };
        let mut parts = Vec::new();
        parts.push(match gpu.utilisation {
            Some(percent) => format!("use {} {percent:>3.0} %", self.bar(percent / 100.0, width)),
            None => "use  – %".to_owned(),
        });
        if let (Some(used), Some(total)) = (gpu.memory_used, gpu.memory_total) {
            let bar = self.bar(used as f64 / total.max(1) as f64, width);
            parts.push(format!("memory {bar} {:.1} / {:.1} GiB", gib(used), gib(total)));
        }
        parts.push(match (gpu.power, gpu.power_limit) {
            (Some(watts), Some(limit)) => format!("{watts:.0} / {limit:.0} W"),
            (watts, _) => rounded(watts, "W"),
        });
        parts.push(rounded(gpu.temperature, "°C"));
        lines.push(format!("  {}", parts.join("   ")));
        if let Some(history) = self.history.get(&key(node, gpu)).filter(|history| history.len() > 1) {
            let blocks: String = history.iter().map(|percent| block(*percent)).collect();
            lines.push(format!("  {}", self.paint(Color::Dim, &blocks)));
        }
        for process in &gpu.processes {
            let memory = process.memory.map_or_else(|| "–".to_owned(), |bytes| format!("{:.2}", gib(bytes)));
            let name = clean(&process.name, columns.saturating_sub(38));
            lines.push(format!("{:>9} {:>16} GiB  {name}", process.pid, memory));
        }
    }
}

fn key(node: &Node, gpu: &Gpu) -> (String, String) {
    (node.sample.host.name.clone(), format!("{} {}", gpu.vendor, gpu.index))
}

/// Truncates a line to a number of columns; escape sequences have none, and colours end with the line.
fn cut(line: &str, columns: usize) -> String {
    let (mut width, mut escaped, mut colored) = (0, false, false);
    let mut text = String::new();
    for c in line.chars() {
        match (c, escaped) {
            ('\x1b', _) => (escaped, colored) = (true, true),
            ('m', true) => escaped = false,
            (_, true) => {}
            _ if width == columns => {
                return if colored { text + "\x1b[0m" } else { text };
            }
            _ => width += 1,
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_monitor::GpuProcess;

    fn node() -> Node {
        let gpu = Gpu {
            vendor: "nvidia".into(),
            index: 3,
            name: "A GPU\x1b[2J".into(),
            utilisation: Some(95.0),
            memory_used: Some(8 << 30),
            memory_total: Some(80 << 30),
            power: Some(512.4),
            power_limit: Some(700.0),
            processes: vec![GpuProcess { pid: 42, name: "python train.py".into(), memory: Some(3 << 30) }],
            ..Gpu::default()
        };
        let host = Host { name: "node7".into(), cores: vec![0.0, 50.0, 100.0], ..Host::default() };
        let sample = Sample { host, gpus: vec![gpu], ..Sample::default() };
        Node { sample, processes: vec![HostProcess { pid: 9, name: "cargo".into(), cpu: 99.7, memory: 1 << 30 }] }
    }

    #[test]
    fn plain_lines() {
        let nodes = [node()];
        let mut screen = Screen::new(false);
        screen.note(&nodes);
        screen.note(&nodes);
        let text = screen.lines(&nodes, 120).join("\n");
        for part in [
            "node7",
            "50 %",
            "▁▅█",
            "gpu 3",
            "95 %",
            "8.0 / 80.0 GiB",
            "512 / 700 W",
            "– °C",
            "python train.py",
            "cargo",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn lines_fit_and_colours_end() {
        let nodes = [node(), node()];
        let screen = Screen::new(true);
        for columns in [20, 40, 80, 200] {
            for line in screen.lines(&nodes, columns) {
                let shown: usize = cut(&line, usize::MAX)
                    .split('\x1b')
                    .enumerate()
                    .map(|(i, part)| {
                        let part = if i == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
                        part.chars().count()
                    })
                    .sum();
                assert!(shown <= columns, "{shown} > {columns}: {line:?}");
                assert!(line.matches("\x1b[0m").count() * 2 >= line.matches('\x1b').count(), "{line:?}");
            }
        }
    }
}
