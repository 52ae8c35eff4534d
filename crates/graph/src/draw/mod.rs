//! A program as a picture: an SVG graph in layers, ops of a module in a box, in a page of its own.

mod layout;
mod program;

use crate::Model;
use layout::{HEIGHT, Placed, place};
use program::{Class, Drawn, Node};
use rushlight_core::Result;

/// The page's style; it follows the browser's light or dark setting.
const STYLE: &str = include_str!("style.css");

/// Text in markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// At most `most` characters.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into(),
    }
}

impl Model {
    /// The program's graph as markup for a page of one's own: an `<svg>` without a style, and why shapes are missing,
    /// if they are. [`Model::to_html`] is a whole page.
    pub fn to_svg(&self) -> Result<(String, Option<String>)> {
        let drawn = program::of(self)?;
        Ok((svg(&drawn), drawn.note))
    }

    /// The program as one HTML file with a picture of its graph, which needs no server and no script: ops in layers
    /// from the inputs down, those of a module in a box, with the shapes of their results and weights, then the text
    /// and the weights. A module of a TorchScript archive is drawn as one function. `name` is the heading.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_graph as graph; }
    /// use rushlight::{graph::Model, state::StateDict};
    /// let text = "def forward(x: float32[n, 4]):\n  y = torch.relu(x)\n  return y\n";
    /// let model = Model::from_text(text, StateDict::new())?;
    /// let page = model.to_html("model")?;
    /// assert!(page.contains(">relu</text>") && page.contains("[n, 4]"));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn to_html(&self, name: &str) -> Result<String> {
        let drawn = program::of(self)?;
        let (elements, bytes) =
            self.state_dict().values().fold((0, 0), |(n, b), t| (n + t.numel(), b + t.numel() * t.dtype().size()));
        let ops = drawn.nodes.iter().filter(|n| !matches!(n.class, Class::Input | Class::Output)).count();
        let mut rows = String::new();
        for (name, tensor) in &self.state_dict() {
            let kind = format!("{}{:?}", tensor.dtype(), tensor.shape());
            rows.push_str(&format!("<tr><td>{}</td><td>{kind}</td></tr>\n", escape(name)));
        }
        let note = match &drawn.note {
            Some(note) => format!("<p class=\"dim\">{}</p>\n", escape(note)),
            None => String::new(),
        };
        Ok(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
             <p>{ops} ops, {count} weights, {elements} elements, {bytes} bytes</p>\n{note}<div class=\"graph\">\n{svg}</div>\n\
             <details><summary>Program</summary><pre>{text}</pre></details>\n\
             <details><summary>Weights</summary><table>\n{rows}</table></details>\n</body>\n</html>\n",
            title = escape(name),
            count = self.state_dict().len(),
            svg = svg(&drawn),
            text = escape(&self.text()?),
        ))
    }
}

/// The graph as markup.
fn svg(drawn: &Drawn) -> String {
    let Placed { nodes, edges, groups, width, height } = place(drawn);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         role=\"img\" aria-label=\"graph of the program\">\n<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    );
    for group in &groups {
        out.push_str(&format!(
            "<g class=\"group\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"10\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            group.x,
            group.y,
            group.width,
            group.height,
            group.x + 10.0,
            group.y + 15.0,
            escape(&group.name)
        ));
    }
    for points in &edges {
        let mut path = String::new();
        for (i, &(x, y)) in points.iter().enumerate() {
            match i.checked_sub(1).map(|before| points[before]) {
                None => path.push_str(&format!("M{x:.1} {y:.1}")),
                Some((x0, y0)) => {
                    let middle = (y0 + y) / 2.0;
                    path.push_str(&format!("C{x0:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}"));
                }
            }
        }
        out.push_str(&format!("<path class=\"edge\" d=\"{path}\" marker-end=\"url(#end)\"/>\n"));
    }
    for (node, spot) in drawn.nodes.iter().zip(&nodes) {
        out.push_str(&box_of(node, spot.x, spot.y, spot.width));
    }
    out.push_str("</svg>\n");
    out
}

/// A node: its name, where it belongs with its weights, and its result. The whole line shows under the pointer.
fn box_of(node: &Node, x: f64, y: f64, width: f64) -> String {
    let left = x - width / 2.0;
    let (mut text, lines) = (String::new(), node.lines());
    let top = y + (HEIGHT - 14.0 * lines.len() as f64) / 2.0 + 10.5;
    for (i, (class, line)) in lines.iter().enumerate() {
        text.push_str(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            top + 14.0 * i as f64,
            escape(line)
        ));
    }
    let class = match node.class {
        Class::Input | Class::Output => "end",
        Class::Weighted => "weighted",
        Class::View => "view",
        Class::Plain => "plain",
    };
    format!(
        "<g class=\"node {class}\"><title>{}</title><rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT:.1}\" rx=\"6\"/>{text}</g>\n",
        escape(&cut(&node.source, 600))
    )
}
