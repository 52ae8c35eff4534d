//! ONNX's If, Loop and Scan as statements of programs.

use super::Builder;
use super::proto::{Attribute, Graph, Node};
use crate::model::quoted;
use rushlight_core::{Error, Result};
use std::fmt::Write;

/// Most nested bodies.
const MAX_DEPTH: usize = 40;

/// Lines of a program under construction.
pub(super) struct Lines {
    pub text: String,
    indent: usize,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { text: String::new(), indent: 1 }
    }

    pub(super) fn push(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}{line}", "  ".repeat(self.indent));
    }
}

fn missing(what: &str) -> Error {
    Error::value(format!("an ONNX node lacks its {what}"))
}

fn graph<'a>(node: &'a Node, name: &str) -> Result<&'a Graph> {
    match node.attributes.iter().find(|(n, _)| n == name) {
        Some((_, Attribute::Graph(graph))) => Ok(graph),
        _ => Err(missing(name)),
    }
}

fn ints(node: &Node, name: &str) -> Vec<i64> {
    match node.attributes.iter().find(|(n, _)| n == name) {
        Some((_, Attribute::Ints(all))) => all.clone(),
        Some((_, Attribute::Int(one))) => vec![*one],
        _ => Vec::new(),
    }
}

/// Variables as the left or right side of an assignment.
fn tuple(names: &[String]) -> String {
    format!("({},)", names.join(", "))
}

fn targets(names: &[String]) -> String {
    format!("{},", names.join(", "))
}

impl Builder {
    fn variable(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count - 1)
    }

    /// Writes the nodes of a body whose inputs are these expressions. Returns the expressions of its outputs.
    fn body(&mut self, graph: &Graph, inputs: &[String], lines: &mut Lines) -> Result<Vec<String>> {
        if lines.indent > MAX_DEPTH {
            return Err(Error::value("bodies of ONNX's control flow are nested too deeply"));
        }
        if graph.inputs.len() != inputs.len() {
            return Err(Error::value(format!("a body takes {} inputs, not {}", graph.inputs.len(), inputs.len())));
        }
        let outer = self.names.clone();
        for (name, tensor) in &graph.weights {
            let stored = format!("body.{}.{name}", self.weights.len());
            self.names.insert(name.clone(), format!("weight({})", quoted(&stored)));
            self.weights.insert(stored, tensor.clone());
        }
        for (input, value) in graph.inputs.iter().zip(inputs) {
            self.names.insert(input.name.clone(), value.clone());
        }
        lines.indent += 1;
        for node in &graph.nodes {
            self.node(node, lines)?;
        }
        let outputs = graph.outputs.iter().map(|o| self.value(&o.name)).collect::<Result<Vec<_>>>();
        lines.indent -= 1;
        self.names = outer;
        outputs
    }

    /// Writes a line of the body that was written last.
    fn inner(&self, lines: &mut Lines, line: &str) {
        lines.indent += 1;
        lines.push(line);
        lines.indent -= 1;
    }

    /// Writes a node of control flow; `false` if the node is none.
    pub(super) fn control(&mut self, node: &Node, lines: &mut Lines) -> Result<bool> {
        match node.op.as_str() {
            "If" => self.branch(node, lines)?,
            "Loop" => self.repeat(node, lines)?,
            "Scan" => self.scan(node, lines)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn branch(&mut self, node: &Node, lines: &mut Lines) -> Result<()> {
        let condition = self.value(node.inputs.first().ok_or_else(|| missing("condition"))?)?;
        let made: Vec<String> = node.outputs.iter().map(|_| self.variable()).collect();
        for (head, name) in [(format!("if bool({condition}):"), "then_branch"), ("else:".into(), "else_branch")] {
            lines.push(&head);
            let outputs = self.body(graph(node, name)?, &[], lines)?;
            if outputs.len() != made.len() {
                return Err(Error::value("a branch of ONNX's If has another number of outputs than the node"));
            }
            self.inner(lines, &format!("{} = {}", targets(&made), tuple(&outputs)));
        }
        self.names.extend(node.outputs.iter().cloned().zip(made));
        Ok(())
    }

    /// Names the results: last states, then the stacked outputs of the steps.
    fn results(
        &mut self,
        node: &Node,
        states: &[String],
        steps: &[String],
        stack: impl Fn(usize, &str) -> String,
        lines: &mut Lines,
    ) -> Result<()> {
        if node.outputs.len() > states.len() + steps.len() {
            return Err(Error::value("an ONNX loop has more outputs than its body"));
        }
        for (at, output) in node.outputs.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let name = match states.get(at) {
                Some(state) => state.clone(),
                None => {
                    let made = self.variable();
                    lines.push(&format!("{made} = {}", stack(at - states.len(), &steps[at - states.len()])));
                    made
                }
            };
            self.names.insert(output.clone(), name);
        }
        Ok(())
    }

    fn repeat(&mut self, node: &Node, lines: &mut Lines) -> Result<()> {
        let body = graph(node, "body")?;
        let given = |at: usize| node.inputs.get(at).map(String::as_str).unwrap_or("");
        let first = node.inputs.get(2..).unwrap_or_default();
        let states: Vec<String> = first.iter().map(|_| self.variable()).collect();
        for (state, value) in states.iter().zip(first) {
            let value = self.value(value)?;
            lines.push(&format!("{state} = {value}"));
        }
        let scans = body.outputs.len().checked_sub(1 + states.len()).ok_or_else(|| missing("outputs of the body"))?;
        let steps: Vec<String> = (0..scans).map(|_| self.variable()).collect();
        steps.iter().for_each(|list| lines.push(&format!("{list} = []")));
        let (count, go_on) = (self.variable(), self.variable());
        lines.push(&format!("{count} = 0"));
        let condition = self.value(given(1))?;
        lines.push(&format!(
            "{go_on} = {}",
            if given(1).is_empty() { "True".into() } else { format!("bool({condition})") }
        ));
        let most = self.value(given(0))?;
        lines.push(&if given(0).is_empty() {
            format!("while {go_on}:")
        } else {
            format!("while {go_on} and {count} < int({most}):")
        });
        let step = self.variable();
        self.inner(lines, &format!("{step} = torch.tensor({count})"));
        let kept = self.variable();
        self.inner(lines, &format!("{kept} = torch.tensor({go_on})"));
        let inputs: Vec<String> = [step, kept].into_iter().chain(states.iter().cloned()).collect();
        let outputs = self.body(body, &inputs, lines)?;
        for (list, value) in steps.iter().zip(&outputs[1 + states.len()..]) {
            self.inner(lines, &format!("torch.append({list}, {value})"));
        }
        self.inner(lines, &format!("{go_on} = bool({})", outputs[0]));
        if !states.is_empty() {
            self.inner(lines, &format!("{} = {}", targets(&states), tuple(&outputs[1..1 + states.len()])));
        }
        self.inner(lines, &format!("{count} = {count} + 1"));
        self.results(node, &states, &steps, |_, list| format!("torch.stack({list}, 0)"), lines)
    }

    fn scan(&mut self, node: &Node, lines: &mut Lines) -> Result<()> {
        let body = graph(node, "body")?;
        let count = ints(node, "num_scan_inputs").first().copied().unwrap_or(0).max(0) as usize;
        if node.attributes.iter().any(|(n, _)| n == "directions") || count == 0 || count > node.inputs.len() {
            return Err(Error::unsupported("ONNX's Scan of opset 8"));
        }
        let (first, over) = node.inputs.split_at(node.inputs.len() - count);
        if first.iter().any(String::is_empty) {
            return Err(Error::unsupported("ONNX's Scan of opset 8"));
        }
        let axis = |name: &str, at: usize| ints(node, name).get(at).copied().unwrap_or(0);
        let states: Vec<String> = first.iter().map(|_| self.variable()).collect();
        for (state, value) in states.iter().zip(first) {
            let value = self.value(value)?;
            lines.push(&format!("{state} = {value}"));
        }
        let over = over.iter().map(|name| self.value(name)).collect::<Result<Vec<_>>>()?;
        let scans = body.outputs.len().checked_sub(states.len()).ok_or_else(|| missing("outputs of the body"))?;
        let steps: Vec<String> = (0..scans).map(|_| self.variable()).collect();
        steps.iter().for_each(|list| lines.push(&format!("{list} = []")));
        let (at, size) = (self.variable(), self.variable());
        lines.push(&format!("{size} = torch.size({}, {})", over[0], axis("scan_input_axes", 0)));
        lines.push(&format!("for {at} in range({size}):"));
        let mut inputs = states.clone();
        for (index, value) in over.iter().enumerate() {
            let row = self.variable();
            let place = match axis("scan_input_directions", index) {
                0 => at.clone(),
                _ => format!("{size} - 1 - {at}"),
            };
            self.inner(lines, &format!("{row} = torch.select({value}, {}, {place})", axis("scan_input_axes", index)));
            inputs.push(row);
        }
        let outputs = self.body(body, &inputs, lines)?;
        for (list, value) in steps.iter().zip(&outputs[states.len()..]) {
            self.inner(lines, &format!("torch.append({list}, {value})"));
        }
        if !states.is_empty() {
            self.inner(lines, &format!("{} = {}", targets(&states), tuple(&outputs[..states.len()])));
        }
        let axes = ints(node, "scan_output_axes");
        let directions = ints(node, "scan_output_directions");
        let stack = |index: usize, list: &str| {
            let axis = axes.get(index).copied().unwrap_or(0);
            match directions.get(index) {
                Some(1) => format!("torch.flip(torch.stack({list}, {axis}), [{axis}])"),
                _ => format!("torch.stack({list}, {axis})"),
            }
        };
        self.results(node, &states, &steps, stack, lines)
    }
}
