//! LSTM, GRU and plain recurrent networks, and one step of each, as ONNX nodes.

use super::super::proto::Attribute::{Int, Ints, Str, Strs};
use super::call::{Call, tensor};
use super::graph::{Exporter, Val};
use super::pointwise::Names;
use super::shape::reshape;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::rc::Rc;

/// ONNX's operator, and the order of its gates in PyTorch's.
struct Kind {
    op: &'static str,
    gates: &'static [usize],
    activation: Option<&'static str>,
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        // Input, output, forget, cell.
        "lstm" => Kind { op: "LSTM", gates: &[0, 3, 1, 2], activation: None },
        // Update, reset, new.
        "gru" => Kind { op: "GRU", gates: &[1, 0, 2], activation: None },
        "rnn_tanh" => Kind { op: "RNN", gates: &[0], activation: Some("Tanh") },
        "rnn_relu" => Kind { op: "RNN", gates: &[0], activation: Some("Relu") },
        _ => return None,
    })
}

pub(super) fn emit(x: &mut Exporter, c: &Call) -> Names {
    if let Some(kind) = c.name.strip_suffix("_cell").and_then(kind) {
        return cell(x, c, &kind);
    }
    match kind(&c.name) {
        Some(kind) => network(x, c, &kind),
        None => Ok(None),
    }
}

/// A weight as a constant.
fn weight(x: &Exporter, value: &Val) -> Result<Tensor> {
    let all = tensor(value)?;
    match x.computed(&all[0])? {
        None => Ok(all[0].detach()),
        Some(_) => Err(Error::unsupported("ONNX: recurrent weights that the model computes")),
    }
}

/// The gates' rows in ONNX's order.
fn ordered(kind: &Kind, t: &Tensor) -> Result<Tensor> {
    let parts = t.chunk(kind.gates.len(), 0)?;
    let parts: Vec<&Tensor> = kind.gates.iter().filter_map(|&g| parts.get(g)).collect();
    Tensor::cat(&parts, 0)
}

/// Weights of the directions of one layer: `W`, `R` and, if there are biases, `B`.
fn weights(x: &mut Exporter, kind: &Kind, directions: &[Vec<Tensor>]) -> Result<Vec<String>> {
    let count = directions.first().map_or(0, Vec::len);
    if count > 4 {
        return Err(Error::unsupported("ONNX: an LSTM with projections (proj_size)"));
    }
    let mut columns: Vec<Vec<Tensor>> = vec![Vec::new(); if count == 4 { 3 } else { 2 }];
    for direction in directions {
        for (at, t) in direction.iter().take(2).enumerate() {
            columns[at].push(ordered(kind, t)?);
        }
        if let [_, _, a, b] = &direction[..] {
            columns[2].push(Tensor::cat(&[&ordered(kind, a)?, &ordered(kind, b)?], 0)?);
        }
    }
    columns.iter().map(|parts| x.constant(Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0)?)).collect()
}

/// One layer over a sequence: outputs and last states.
fn layer(
    x: &mut Exporter,
    kind: &Kind,
    input: &str,
    parameters: &[Vec<Tensor>],
    states: &[String],
) -> Result<Vec<String>> {
    let hidden = parameters[0][1].shape().get(1).copied().unwrap_or(0);
    let made = weights(x, kind, parameters)?;
    let mut inputs = vec![input, &made[0], &made[1], made.get(2).map_or("", String::as_str), ""];
    inputs.extend(states.iter().map(String::as_str));
    let mut attributes = vec![("hidden_size", Int(hidden as i64))];
    if parameters.len() == 2 {
        attributes.push(("direction", Str("bidirectional".into())));
    }
    if let Some(activation) = kind.activation {
        attributes.push(("activations", Strs(vec![activation.into(); parameters.len()])));
    }
    if kind.op == "GRU" {
        attributes.push(("linear_before_reset", Int(1)));
    }
    Ok(x.nodes(kind.op, &inputs, attributes, if kind.op == "LSTM" { 3 } else { 2 }))
}

fn network(x: &mut Exporter, c: &Call, kind: &Kind) -> Names {
    if c.get("batch_sizes").is_some() {
        return c.refuse("packed sequences");
    }
    if c.flag("train")? && c.float("dropout", 0.0)? != 0.0 {
        return c.refuse("dropout in training mode; call model.eval() before the export");
    }
    let input = c.input()?;
    let given = c.need("hx")?;
    let states = given.items().unwrap_or_else(|| vec![given.clone()]);
    let states = states.iter().map(tensor).collect::<Result<Vec<Rc<[Tensor]>>>>()?;
    let all = c.need("params")?.items().unwrap_or_default();
    let all = all.iter().map(|v| weight(x, v)).collect::<Result<Vec<_>>>()?;
    let (layers, biases) = (c.int("num_layers", 1)?.max(1) as usize, c.flag("has_biases")?);
    let directions = if c.flag("bidirectional")? { 2 } else { 1 };
    if all.len() != layers * directions * if biases { 4 } else { 2 } {
        return c.refuse("projections (proj_size)");
    }
    let each = all.len() / (layers * directions);
    let batch_first = c.flag("batch_first")?;
    let mut sequence = x.name(&input)?;
    if batch_first {
        sequence = x.node("Transpose", &[&sequence], vec![("perm", Ints(vec![1, 0, 2]))]);
    }
    let names = states.iter().map(|s| x.name(s)).collect::<Result<Vec<_>>>()?;
    let mut last: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    for at in 0..layers {
        let parameters: Vec<Vec<Tensor>> =
            all[at * directions * each..(at + 1) * directions * each].chunks(each).map(<[Tensor]>::to_vec).collect();
        let mut first = Vec::new();
        for name in &names {
            let (from, to) = ((at * directions) as i64, ((at + 1) * directions) as i64);
            let (from, to, axes) = (x.ints(&[from])?, x.ints(&[to])?, x.ints(&[0])?);
            first.push(if layers == 1 { name.clone() } else { x.op("Slice", &[name, &from, &to, &axes]) });
        }
        let made = layer(x, kind, &sequence, &parameters, &first)?;
        // [length, directions, batch, hidden] to [length, batch, directions * hidden].
        let moved = x.node("Transpose", &[&made[0]], vec![("perm", Ints(vec![0, 2, 1, 3]))]);
        let width = directions * parameters[0][1].shape().get(1).copied().unwrap_or(0);
        let (length, batch) = if batch_first { (1, 0) } else { (0, 1) };
        let sizes = [x.size_of(&input, length)?, x.size_of(&input, batch)?, Val::int(width as i64)];
        sequence = reshape(x, &moved, &sizes)?;
        made[1..].iter().zip(&mut last).for_each(|(name, list)| list.push(name.clone()));
    }
    if batch_first {
        sequence = x.node("Transpose", &[&sequence], vec![("perm", Ints(vec![1, 0, 2]))]);
    }
    let mut out = vec![sequence];
    for names in &last {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        out.push(match names[..] {
            [one] => one.to_string(),
            _ => x.node("Concat", &names, vec![("axis", Int(0))]),
        });
    }
    Ok(Some(out))
}

/// One step, as a sequence of length one.
fn cell(x: &mut Exporter, c: &Call, kind: &Kind) -> Names {
    let mut parameters = Vec::new();
    for name in ["w_ih", "w_hh", "b_ih", "b_hh"] {
        if let Some(value) = c.get(name) {
            parameters.push(weight(x, value)?);
        }
    }
    let first = x.ints(&[0])?;
    let lift = |x: &mut Exporter, all: &Rc<[Tensor]>| -> Result<String> {
        let name = x.name(all)?;
        Ok(x.op("Unsqueeze", &[&name, &first]))
    };
    let input = lift(x, &c.input()?)?;
    let given = c.need("hx")?;
    let states = given.items().unwrap_or_else(|| vec![given.clone()]);
    let states = states.iter().map(|s| lift(x, &tensor(s)?)).collect::<Result<Vec<_>>>()?;
    let made = layer(x, kind, &input, &[parameters], &states)?;
    Ok(Some(made[1..].iter().map(|name| x.op("Squeeze", &[name, &first])).collect()))
}
