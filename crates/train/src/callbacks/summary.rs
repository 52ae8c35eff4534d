//! Model summary as a table.

use super::Callback;
use crate::run::Run;
use rushlight_core::{Error, Result};
use rushlight_nn::{Member, Module};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::profile::{self, CountedCall};
use std::collections::HashMap;

/// Prints the model's modules at the beginning: kind, shapes of parameters, their number, and the floating-point
/// operations of a forward pass on one sample.
///
/// Counts products with a parameter: two per weight of a linear layer, times the positions where it is applied, which
/// [`ModelSummary::positions`] sets for sequences. Convolutions need [`ModelSummary::positions`] as well: the pixels of
/// their output. [`ModelSummary::traced`] counts them instead.
#[derive(Clone, Debug)]
pub struct ModelSummary {
    depth: usize,
    positions: u64,
    /// Modules by name, and their own operations on one sample.
    traced: Option<Vec<(String, f64)>>,
}

impl Default for ModelSummary {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelSummary {
    /// The model's direct children.
    pub fn new() -> Self {
        Self { depth: 1, positions: 1, traced: None }
    }

    /// Depth of nested modules to show.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Number of positions of a sample where weights are applied: the length of a sequence, or the pixels of an output.
    pub fn positions(mut self, positions: u64) -> Self {
        self.positions = positions.max(1);
        self
    }

    /// Runs a forward pass of the model on a batch of `samples` samples and counts the operations of products,
    /// convolutions and attention in the engine, per sample. A call is attributed to the module whose parameter it
    /// reads. A call without a parameter, such as attention, is attributed to the smallest module that contains the
    /// modules before and after it. Fails if the profiler is already running or the forward pass fails.
    ///
    /// ```
    /// # mod rushlight {
    /// #     pub use rushlight_tensor::*;
    /// #     pub use rushlight_nn as nn;
    /// #     pub use rushlight_train as train;
    /// # }
    /// use rushlight::nn::{Forward, Linear};
    /// use rushlight::Tensor;
    /// use rushlight::train::callbacks::ModelSummary;
    /// let model = Linear::new(8, 4)?;
    /// let summary = ModelSummary::new().traced(&model, 16, || model.forward(&Tensor::ones([16, 8])?))?;
    /// assert!(summary.table(&model).ends_with("64 FLOPs forward, counted"));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn traced<T>(
        mut self,
        model: &dyn Module,
        samples: usize,
        forward: impl FnOnce() -> Result<T>,
    ) -> Result<Self> {
        let (done, calls) = profile::counted_calls(|| no_grad(forward)).map_err(Error::value)?;
        done?;
        let mut owners = HashMap::new();
        note_owners(model, "", &mut owners);
        let owner = |call: &CountedCall| call.operands.iter().rev().find_map(|address| owners.get(address));
        let known: Vec<Option<&String>> = calls.iter().map(owner).collect();
        let place = |i: usize| match known[i] {
            Some(name) => name.clone(),
            None => {
                let before = known[..i].iter().rev().find_map(|name| *name);
                let after = known[i..].iter().find_map(|name| *name);
                enclosing(before, after)
            }
        };
        let share = |call: &CountedCall| call.flops as f64 / samples.max(1) as f64;
        self.traced = Some(calls.iter().enumerate().map(|(i, call)| (place(i), share(call))).collect());
        Ok(self)
    }

    /// The table.
    pub fn table(&self, model: &dyn Module) -> String {
        let mut rows = vec![["name".to_owned(), "kind".into(), "shapes".into(), "parameters".into(), "FLOPs".into()]];
        self.add(model, "", "", 0, &mut rows);
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3), width(4)];
        let line = |row: &[String; 5]| {
            format!(
                "{:<a$}  {:<b$}  {:<c$}  {:>d$}  {:>e$}",
                row[0],
                row[1],
                row[2],
                row[3],
                row[4],
                a = widths[0],
                b = widths[1],
                c = widths[2],
                d = widths[3],
                e = widths[4]
            )
            .trim_end()
            .to_owned()
        };
        let rule = "─".repeat(widths.iter().sum::<usize>() + 8);
        let all = model.parameters();
        let trainable: usize = all.iter().filter(|p| p.requires_grad()).map(Tensor::numel).sum();
        let bytes: usize = all.iter().chain(&model.buffers()).map(|t| t.numel() * t.dtype().size()).sum();
        let mut lines = vec![line(&rows[0]), rule.clone()];
        lines.extend(rows[1..].iter().map(line));
        lines.push(rule);
        lines.push(format!(
            "{} parameters, {} of them trained; {:.1} MB; {} FLOPs forward{}",
            short(model.num_parameters() as f64),
            short(trainable as f64),
            bytes as f64 / 1e6,
            short(self.operations(model, "")),
            if self.traced.is_some() { ", counted" } else { "" }
        ));
        lines.join("\n")
    }

    fn add(&self, module: &dyn Module, path: &str, name: &str, depth: usize, rows: &mut Vec<[String; 5]>) {
        let mut shapes = Vec::new();
        module.members(&mut |_, member| {
            if let Member::Parameter(p) = member {
                shapes.push(format!("{:?}", p.shape()));
            }
        });
        let label = format!("{}{}", "  ".repeat(depth), if name.is_empty() { "model" } else { name });
        let (count, flops) = (module.num_parameters() as f64, self.operations(module, path));
        rows.push([label, module.type_name().into(), shapes.join(" "), short(count), short(flops)]);
        if depth < self.depth {
            for (child, module) in module.named_children() {
                self.add(module, &joined(path, &child), &child, depth + 1, rows);
            }
        }
    }

    /// Operations of a module and its children: counted by the trace, or estimated from its parameters.
    fn operations(&self, module: &dyn Module, path: &str) -> f64 {
        match &self.traced {
            Some(traced) => traced.iter().filter(|(name, _)| is_within(name, path)).map(|(_, flops)| flops).sum(),
            None => self.flops(module),
        }
    }

    /// Operations of products with the parameters of a module: matrices and kernels; an embedding lookup has none.
    fn flops(&self, module: &dyn Module) -> f64 {
        let mut flops = 0.0;
        module.members(&mut |_, member| match member {
            Member::Parameter(p) if p.rank() >= 2 && !module.type_name().contains("Embedding") => {
                flops += 2.0 * p.numel() as f64 * self.positions as f64;
            }
            Member::Module(child) => flops += self.flops(child),
            _ => {}
        });
        flops
    }
}

/// The module that owns the parameter at an address. If two modules share one, an embedding, which only looks rows up,
/// does not count.
fn note_owners(module: &dyn Module, path: &str, owners: &mut HashMap<usize, String>) {
    let embeds = module.type_name().contains("Embedding");
    module.members(&mut |name, member| match member {
        Member::Parameter(p) => {
            let address = p.tensor().storage().ptr() as usize;
            if !embeds || !owners.contains_key(&address) {
                owners.insert(address, path.to_owned());
            }
        }
        Member::Module(child) => note_owners(child, &joined(path, name), owners),
        _ => {}
    });
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether a module is another, or contained in it; the whole model has no name.
fn is_within(name: &str, path: &str) -> bool {
    path.is_empty() || name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The smallest module that contains two others.
fn enclosing(a: Option<&String>, b: Option<&String>) -> String {
    let (Some(a), Some(b)) = (a, b) else { return String::new() };
    let common = a.split('.').zip(b.split('.')).take_while(|(x, y)| x == y).map(|(x, _)| x);
    common.collect::<Vec<_>>().join(".")
}

/// Formats as `1.2 M`.
fn short(n: f64) -> String {
    match n {
        0.0 => "-".into(),
        n if n >= 1e12 => format!("{:.1} T", n / 1e12),
        n if n >= 1e9 => format!("{:.1} G", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n => format!("{n}"),
    }
}

impl Callback for ModelSummary {
    fn name(&self) -> &str {
        "ModelSummary"
    }

    fn on_fit_start(&mut self, run: &mut Run, model: &dyn Module) -> Result<()> {
        if run.is_global_zero() {
            eprintln!("{}", self.table(model));
        }
        Ok(())
    }
}
