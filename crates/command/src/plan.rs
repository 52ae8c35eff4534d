//! `rushlight plan`: how to split a model over a machine.

use crate::measure::measure;
use crate::{complain, print};
use rushlight_dist::plan::{
    Configuration, Estimate, Job, MACHINES, MODELS, Machine, Model, Precision, Recompute, plans,
};
use rushlight_settings::did_you_mean;
use std::ffi::OsString;
use std::fmt::Write;

const USAGE: &str = "Usage: rushlight plan --model NAME --nodes N [OPTIONS]

Estimates a training step of a transformer for every way to split it: memory of a rank, communication, bubble, time.
Recommends the fastest that fits.

  --model NAME      7b, 8b, 70b, 405b, 1.5b, 22b, 175b or 1t; or a Hugging Face config.json, or its folder
  --layers N, --hidden N, --heads N, --kv-heads N, --ffn N, --vocabulary N, --gated, --tied
                    sizes of a model, or in place of the named one's
  --machine NAME    h100 (default), frontier or aurora, by published constants; or a JSON file of others, such as
                    measured ones: like, devices, peak_tflops, reach, memory_gb, inside_gb_per_s, between_gb_per_s,
                    latency_us, host_gb_per_s
  --nodes N         nodes (default 1)
  --gpus N          devices a node (default the machine's)
  --batch N         sequences of a step (default 4 Mi tokens)
  --sequence N      tokens of a sequence (default the model's)
  --precision NAME  dtype of products and activations: bf16 (default) or f32
  --offload         also strategies with weights, gradients and moments in the host's memory
  --data-parallel   only strategies that split neither tensors nor stages, as deepspeed.initialize and the Trainer have
  --rows N          strategies to show (default 8)
  --write FILE      writes the recommended configuration as JSON, for rushlight run --plan, the Trainer and
                    deepspeed.initialize
  --measure FILE    measures this machine and writes FILE for --machine: products and blocks in --precision, memory, copies;
                    under rushlight run also sums over the ranks. What else there is to know is that of --machine
  --scaling         shows 7b, 70b and 1t on 1,024 and 16,384 devices of each machine, beside published figures";

#[derive(Default)]
struct Sizes {
    layers: Option<usize>,
    hidden: Option<usize>,
    heads: Option<usize>,
    kv_heads: Option<usize>,
    ffn: Option<usize>,
    vocabulary: Option<usize>,
    gated: bool,
    tied: bool,
}

impl Sizes {
    fn are_given(&self) -> bool {
        let all = [self.layers, self.hidden, self.heads, self.kv_heads, self.ffn, self.vocabulary];
        all.iter().any(Option::is_some) || self.gated || self.tied
    }

    /// The model with these sizes; without one, a GPT.
    fn of(&self, model: Option<Model>) -> Result<Model, String> {
        let need = |size: Option<usize>, name: &str| {
            size.ok_or(format!("a model of one's own needs {name}; or name one with --model"))
        };
        let mut model = match model {
            Some(model) => model,
            None => {
                let (layers, hidden) = (need(self.layers, "--layers")?, need(self.hidden, "--hidden")?);
                let heads = need(self.heads, "--heads")?;
                let (ffn, vocabulary, sequence) = (4 * hidden, 51200, 2048);
                let (gated, tied) = (false, false);
                Model { name: "own", layers, hidden, ffn, gated, tied, heads, kv_heads: heads, vocabulary, sequence }
            }
        };
        if self.are_given() {
            model.name = "own";
        }
        let set = |to: &mut usize, size: Option<usize>| *to = size.unwrap_or(*to);
        set(&mut model.layers, self.layers);
        set(&mut model.hidden, self.hidden);
        set(&mut model.heads, self.heads);
        set(&mut model.kv_heads, self.kv_heads);
        set(&mut model.ffn, self.ffn);
        set(&mut model.vocabulary, self.vocabulary);
        model.gated |= self.gated;
        model.tied |= self.tied;
        model.check().map_err(|e| e.to_string())
    }
}

struct Options {
    model: Option<Model>,
    sizes: Sizes,
    machine: Machine,
    nodes: usize,
    gpus: Option<usize>,
    batch: Option<usize>,
    sequence: Option<usize>,
    precision: Precision,
    offload: bool,
    data_parallel: bool,
    rows: usize,
    write: Option<String>,
    measure: Option<String>,
    scaling: bool,
}

fn parse(arguments: &[OsString]) -> Result<Option<Options>, String> {
    let machine = MACHINES[0];
    let (model, gpus, batch, sequence, write) = (None, None, None, None, None);
    let (precision, offload, scaling) = (Precision::Bf16, false, false);
    let (nodes, rows) = (1, 8);
    let mut options = Options {
        model,
        sizes: Sizes::default(),
        machine,
        nodes,
        gpus,
        batch,
        sequence,
        precision,
        offload,
        data_parallel: false,
        rows,
        write,
        measure: None,
        scaling,
    };
    let mut words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (word.clone(), None),
        };
        let mut text = || value.take().or_else(|| words.next()).ok_or(format!("{name} needs a value"));
        let number = |text: String| match text.parse::<usize>() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(format!("{name} needs a positive number, got '{text}'")),
        };
        let names = |all: Vec<&str>| all.join(", ");
        match name.as_str() {
            "-h" | "--help" => return Ok(None),
            "--model" => {
                let text = text()?;
                let known = || names(MODELS.iter().map(|m| m.name).collect());
                options.model = Some(match (Model::named(&text), own_file(&text, "config.json")?) {
                    (Some(model), _) => model,
                    (None, Some(file)) => Model::from_config(&file).map_err(|e| format!("{text}: {e}"))?,
                    (None, None) => {
                        return Err(format!("there is no model '{text}': {}, or a Hugging Face config.json", known()));
                    }
                });
            }
            "--machine" => {
                let text = text()?;
                let known = || names(MACHINES.iter().map(|m| m.name).collect());
                options.machine = match (Machine::named(&text), own_file(&text, "machine.json")?) {
                    (Some(machine), _) => machine,
                    (None, Some(file)) => Machine::from_json(&file).map_err(|e| format!("{text}: {e}"))?,
                    (None, None) => {
                        return Err(format!("there is no machine '{text}': {}, or a JSON file of constants", known()));
                    }
                };
            }
            "--layers" => options.sizes.layers = Some(number(text()?)?),
            "--hidden" => options.sizes.hidden = Some(number(text()?)?),
            "--heads" => options.sizes.heads = Some(number(text()?)?),
            "--kv-heads" => options.sizes.kv_heads = Some(number(text()?)?),
            "--ffn" => options.sizes.ffn = Some(number(text()?)?),
            "--vocabulary" => options.sizes.vocabulary = Some(number(text()?)?),
            "--gated" => options.sizes.gated = true,
            "--tied" => options.sizes.tied = true,
            "--nodes" => options.nodes = number(text()?)?,
            "--gpus" => options.gpus = Some(number(text()?)?),
            "--batch" => options.batch = Some(number(text()?)?),
            "--sequence" => options.sequence = Some(number(text()?)?),
            "--precision" => {
                let text = text()?;
                options.precision =
                    Precision::named(&text).ok_or_else(|| format!("--precision is bf16 or f32, not '{text}'"))?;
            }
            "--offload" => options.offload = true,
            "--data-parallel" => options.data_parallel = true,
            "--rows" => options.rows = number(text()?)?,
            "--write" => options.write = Some(text()?),
            "--measure" => options.measure = Some(text()?),
            "--scaling" => options.scaling = true,
            _ => return Err(format!("there is no option {name}{}", did_you_mean(&name, USAGE))),
        }
    }
    Ok(Some(options))
}

/// The text of a file, or of a file of this name in a folder; `None` if there is no such path.
fn own_file(path: &str, name: &str) -> Result<Option<String>, String> {
    let path = std::path::Path::new(path);
    let file = if path.is_dir() { path.join(name) } else { path.to_path_buf() };
    if !file.exists() {
        return Ok(None);
    }
    std::fs::read_to_string(&file).map(Some).map_err(|e| format!("cannot read '{}': {e}", file.display()))
}

pub fn plan(arguments: &[OsString]) -> u8 {
    match parse(arguments) {
        Ok(None) => print(USAGE),
        Ok(Some(options)) if options.scaling => print(&scaling()),
        Ok(Some(options)) => {
            match options.measure.as_ref().map_or_else(|| shown(&options), |path| measured(&options, path)) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => print(&text),
                Err(e) => {
                    complain(&format!("rushlight plan: {e}"));
                    return 1;
                }
            }
        }
        Err(e) => {
            complain(&format!("rushlight plan: {e}; see rushlight plan --help"));
            return 2;
        }
    }
    0
}

/// Measures, and writes the file on the first rank.
fn measured(options: &Options, path: &str) -> Result<String, String> {
    if Machine::named(options.machine.name).is_none() {
        return Err("--measure takes what it cannot measure from --machine: name one, not a file".into());
    }
    let Some((file, text)) = measure(&options.machine, options.precision).map_err(|e| e.to_string())? else {
        return Ok(String::new());
    };
    std::fs::write(path, file).map_err(|e| format!("cannot write '{path}': {e}"))?;
    Ok(format!("{text}; written to {path}"))
}

fn mesh(one: &Estimate) -> String {
    let s = &one.strategy;
    format!("dp {} x tp {} x pp {}", s.data, s.tensor, s.pipeline)
}

fn shown(options: &Options) -> Result<String, String> {
    if options.model.is_none() && !options.sizes.are_given() {
        return Err("--model is missing".into());
    }
    let mut model = options.sizes.of(options.model)?;
    if let Some(sequence) = options.sequence {
        model.sequence = sequence;
    }
    let mut machine = options.machine;
    machine.devices = options.gpus.unwrap_or(machine.devices);
    let devices = options.nodes * machine.devices;
    let batch = options.batch.unwrap_or((4 << 20) / model.sequence);
    let job = Job { model, machine, devices, batch, precision: options.precision };
    let mut found = plans(&job, options.offload);
    found.retain(|one| !options.data_parallel || (one.strategy.tensor, one.strategy.pipeline) == (1, 1));
    let mut text = format!(
        "{}: {:.2} billion parameters, sequences of {}, a batch of {batch}, on {devices} devices ({})\n\n",
        model.name,
        model.parameters() / 1e9,
        model.sequence,
        machine.device
    );
    let Some(first) = found.first() else {
        return Err(format!(
            "nothing fits {devices} devices of {:.0} GB each with a batch of {batch} sequences: use more nodes, another \
             batch, a shorter sequence{}",
            machine.memory / 1e9,
            if options.offload { "" } else { " or --offload" }
        ));
    };
    text += "| mesh | ZeRO | microbatch | recompute | memory GB | sent GB | bubble | step s | tokens/s/device | of peak |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|\n";
    // The best of each mesh and stage: other microbatches are variants of it.
    let mut seen = Vec::new();
    for one in &found {
        let s = &one.strategy;
        let key = (s.data, s.tensor, s.pipeline, s.zero, s.offload);
        if seen.contains(&key) || seen.len() == options.rows {
            continue;
        }
        seen.push(key);
        let _ = writeln!(
            text,
            "| {} | {}{} | {} x {} | {} | {:.1} | {:.1} | {:.1} % | {:.3} | {:.0} | {:.1} % |",
            mesh(one),
            one.strategy.zero,
            if one.strategy.offload { format!(", offload {:.0} GB", one.host / 1e9) } else { String::new() },
            one.microbatches,
            one.strategy.microbatch,
            if one.strategy.recompute == Recompute::Full { "blocks" } else { "none" },
            one.memory() / 1e9,
            one.sent / 1e9,
            100.0 * one.bubble,
            one.seconds,
            one.tokens,
            100.0 * one.utilisation
        );
    }
    let _ = write!(text, "\nRecommended: {}, ZeRO {}", mesh(first), first.strategy.zero);
    if let Some(path) = &options.write {
        std::fs::write(path, Configuration::of(&job, first).to_json())
            .map_err(|e| format!("cannot write '{path}': {e}"))?;
        let _ = write!(text, "; written to {path}");
    }
    Ok(text)
}

/// Published shares of the peak, by machine and model.
const PUBLISHED: &[(&str, &str, &str)] = &[
    ("h100", "7b", "41 % (Megatron, 1.7B)"),
    ("h100", "70b", "43 % (Llama 3 405B, 8,192); 38 to 41 % (16,384)"),
    ("h100", "1t", "47 % (Megatron, 462B, 6,144)"),
    ("frontier", "7b", "38 % (22B)"),
    ("frontier", "70b", "36 % (175B, 1,024)"),
    ("frontier", "1t", "32 % (1T, 3,072)"),
    ("aurora", "7b", "31 %"),
    ("aurora", "70b", "31 %"),
    ("aurora", "1t", "31 %"),
];

fn scaling() -> String {
    let mut text =
        String::from("| machine | model | devices | batch, Mi tokens | mesh | ZeRO | step s | of peak | published |\n");
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for machine in MACHINES {
        for name in ["7b", "70b", "1t"] {
            for (devices, tokens) in [(1024, 4 << 20), (16384, 16 << 20)] {
                let Some(model) = Model::named(name) else { continue };
                // Whole nodes of 12: a multiple of 12 near the number.
                let devices = if machine.devices.is_power_of_two() { devices } else { devices / 16 * machine.devices };
                let batch = if machine.devices.is_power_of_two() { tokens } else { tokens / 16 * 12 } / model.sequence;
                let job = Job { model, machine: *machine, devices, batch, precision: Precision::Bf16 };
                let published =
                    PUBLISHED.iter().find(|row| (row.0, row.1) == (machine.name, name)).map_or("", |row| row.2);
                let head = format!(
                    "| {} | {name} | {devices} | {:.0} |",
                    machine.name,
                    (batch * model.sequence) as f64 / 1048576.0
                );
                let _ = match plans(&job, false).first() {
                    Some(one) => writeln!(
                        text,
                        "{head} {} | {} | {:.2} | {:.1} % | {published} |",
                        mesh(one),
                        one.strategy.zero,
                        one.seconds,
                        100.0 * one.utilisation
                    ),
                    None => writeln!(text, "{head} does not fit | | | | {published} |"),
                };
            }
        }
    }
    text
}
