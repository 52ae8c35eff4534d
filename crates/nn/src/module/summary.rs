//! Models as text: PyTorch's nested form, and a table with counts.

use super::Module;
use rushlight_tensor::Tensor;
use std::fmt;

/// The nested form: one line for a module without children, else one line per child.
pub(super) fn repr(kind: &str, extra: &str, children: &[(String, &dyn Module)]) -> String {
    let named: Vec<(&str, &dyn Module)> = children.iter().map(|(name, child)| (name.as_str(), *child)).collect();
    let mut rows = rows(&named);
    if kind == LIST {
        rows = merge_repeated(rows);
    }
    if rows.is_empty() && !extra.contains('\n') {
        return format!("{kind}({extra})");
    }
    block(kind, extra, &rows)
}

/// Printed type of a field that is a vector of modules.
const LIST: &str = "ModuleList";

/// Names and texts of children. The items of a vector, `name.0` and so on, are together one child.
fn rows(mut children: &[(&str, &dyn Module)]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    while let [(name, child), rest @ ..] = children {
        let Some((field, _)) = name.split_once('.') else {
            rows.push(((*name).to_owned(), child.repr()));
            children = rest;
            continue;
        };
        let inner = |name: &'_ str| name.strip_prefix(field).and_then(|rest| rest.strip_prefix('.')).map(str::len);
        let items: Vec<(&str, &dyn Module)> = children
            .iter()
            .map_while(|(name, item)| inner(name).map(|length| (&name[name.len() - length..], *item)))
            .collect();
        rows.push((field.to_owned(), block(LIST, "", &merge_repeated(self::rows(&items)))));
        children = &children[items.len()..];
    }
    rows
}

/// Equal neighbours in a list are one row: `(0-3): 4 x …`.
fn merge_repeated(rows: Vec<(String, String)>) -> Vec<(String, String)> {
    let runs = rows.chunk_by(|a, b| a.1 == b.1);
    let merged = runs.filter_map(|run| match run {
        [] => None,
        [one] => Some(one.clone()),
        [first, .., last] => Some((format!("{}-{}", first.0, last.0), format!("{} x {}", run.len(), first.1))),
    });
    merged.collect()
}

fn block(kind: &str, extra: &str, rows: &[(String, String)]) -> String {
    let mut text = format!("{kind}(\n");
    for line in extra.lines() {
        text += &format!("  {line}\n");
    }
    for (name, row) in rows {
        text += &format!("  ({name}): {}\n", row.replace('\n', "\n  "));
    }
    text + ")"
}

/// A table of modules and their parameters; print it with `{}`.
#[derive(Clone, Debug)]
pub struct Summary {
    rows: Vec<Row>,
    total: usize,
    trainable: usize,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Row {
    depth: usize,
    name: String,
    kind: &'static str,
    parameters: usize,
}

impl Summary {
    pub(super) fn of(
        kind: &'static str,
        parameters: &[Tensor],
        buffers: &[Tensor],
        children: Vec<(String, &dyn Module)>,
    ) -> Self {
        let size = |t: &Tensor| t.numel() * t.dtype().size();
        let total = parameters.iter().map(Tensor::numel).sum();
        let mut summary = Summary {
            rows: vec![Row { depth: 0, name: String::new(), kind, parameters: total }],
            total,
            trainable: parameters.iter().filter(|p| p.requires_grad()).map(Tensor::numel).sum(),
            bytes: parameters.iter().chain(buffers).map(size).sum(),
        };
        summary.add_children(children, 1);
        summary
    }

    fn add_children(&mut self, children: Vec<(String, &dyn Module)>, depth: usize) {
        for (name, child) in children {
            self.rows.push(Row { depth, name, kind: child.type_name(), parameters: child.num_parameters() });
            self.add_children(child.named_children(), depth + 1);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = |r: &Row| {
            let name = if r.depth == 0 { String::new() } else { format!(" ({})", r.name) };
            format!("{}{}{name}", "  ".repeat(r.depth), r.kind)
        };
        let labels: Vec<String> = self.rows.iter().map(label).collect();
        let width = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0).max(6);
        writeln!(f, "{:width$}  {:>14}", "Module", "Parameters")?;
        writeln!(f, "{}", "-".repeat(width + 16))?;
        for (label, row) in labels.iter().zip(&self.rows) {
            let count = if row.parameters == 0 { "-".to_owned() } else { grouped(row.parameters) };
            writeln!(f, "{label:width$}  {count:>14}")?;
        }
        writeln!(f, "{}", "-".repeat(width + 16))?;
        writeln!(f, "Trainable parameters: {} of {}", grouped(self.trainable), grouped(self.total))?;
        write!(f, "Size with buffers: {:.2} MiB", self.bytes as f64 / (1 << 20) as f64)
    }
}

/// `1234567` as `1,234,567`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
