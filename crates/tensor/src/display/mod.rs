//! Tensors as text, the way PyTorch prints them.

mod format;

use crate::Tensor;
use crate::autograd::no_grad;
use crate::cat;
use format::{Column, Values};
use rushlight_core::{DType, Device, Result};
use std::fmt;
use std::sync::RwLock;

/// How tensors are printed; the defaults are PyTorch's.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{PrintOptions, Tensor};
/// let x = Tensor::new([1.0f32, 2.5])?;
/// assert_eq!(x.to_string(), "tensor([1.0000, 2.5000])");
/// assert_eq!(x.display(PrintOptions { precision: 1, ..Default::default() }).to_string(), "tensor([1.0, 2.5])");
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrintOptions {
    /// Digits after the point of floats.
    pub precision: usize,
    /// Tensors with more elements are summarised.
    pub threshold: usize,
    /// How many entries a summary shows at either end of each dimension.
    pub edgeitems: usize,
    /// Characters per line.
    pub linewidth: usize,
    /// Whether floats are shown in scientific notation; decided by their magnitudes if `None`.
    pub sci_mode: Option<bool>,
}

impl PrintOptions {
    const DEFAULT: Self = Self { precision: 4, threshold: 1000, edgeitems: 3, linewidth: 80, sci_mode: None };
}

impl Default for PrintOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

static OPTIONS: RwLock<PrintOptions> = RwLock::new(PrintOptions::DEFAULT);

/// Changes how all tensors of the process are printed.
pub fn set_printoptions(options: PrintOptions) {
    *OPTIONS.write().unwrap_or_else(|e| e.into_inner()) = options;
}

/// How tensors are printed now.
pub fn printoptions() -> PrintOptions {
    *OPTIONS.read().unwrap_or_else(|e| e.into_inner())
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(printoptions()).fmt(f)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Tensor {
    /// This tensor as text with the given print options, for `format!` and similar macros.
    pub fn display(&self, options: PrintOptions) -> impl fmt::Display + '_ {
        Text { tensor: self, options }
    }
}

struct Text<'a> {
    tensor: &'a Tensor,
    options: PrintOptions,
}

const PREFIX: &str = "tensor(";

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match self.body() {
            Ok(body) => body,
            // `Display` must not fail on its own: the reason is printed instead of the elements.
            Err(e) => format!("<elements unavailable: {e}>"),
        };
        let mut text = format!("{PREFIX}{body}");
        // PyTorch counts from the last line's break, or one past the start without one.
        let mut column = text.len() + 2 - text.rfind('\n').map_or(0, |at| at + 1);
        for suffix in self.suffixes() {
            if column + suffix.len() + 2 > self.options.linewidth {
                text.push_str(",\n");
                text.push_str(&" ".repeat(PREFIX.len()));
                column = PREFIX.len() + suffix.len();
            } else {
                text.push_str(", ");
                column += suffix.len() + 2;
            }
            text.push_str(&suffix);
        }
        text.push(')');
        f.pad(&text)
    }
}

impl Text<'_> {
    fn suffixes(&self) -> Vec<String> {
        let t = self.tensor;
        let mut out = Vec::new();
        if t.device() != Device::Cpu {
            out.push(format!("device='{}'", t.device()));
        }
        let empty = t.numel() == 0;
        let hidden = if empty { t.rank() != 1 } else { self.options.edgeitems == 0 };
        if hidden {
            let sizes: Vec<String> = t.shape().iter().map(|d| d.to_string()).collect();
            // A Python tuple of one has a comma.
            out.push(format!("size=({}{})", sizes.join(", "), if sizes.len() == 1 { "," } else { "" }));
        }
        // Elements show int64 and bool by themselves; an empty tensor has none to show it.
        let shown = matches!(t.dtype(), DType::I64 | DType::Bool) || t.dtype() == crate::default_dtype().complex();
        let evident = t.dtype() == crate::default_dtype() || !empty && shown;
        if !evident {
            out.push(format!("dtype=torch.{}", t.dtype()));
        }
        if let Some(name) = t.grad_fn() {
            out.push(format!("grad_fn=<{name}>"));
        } else if t.requires_grad() {
            out.push("requires_grad=True".to_string());
        }
        out
    }

    fn body(&self) -> Result<String> {
        let t = self.tensor.detach();
        if t.numel() == 0 {
            return Ok("[]".to_string());
        }
        let edge = self.options.edgeitems;
        let summarize = t.numel() > self.options.threshold;
        let shown = if summarize { no_grad(|| summary(&t, edge))? } else { t.clone() };
        let values = Values::read(&shown)?;
        let column = Column::fit(&values, &self.options);
        let shape: Vec<Axis> = t
            .shape()
            .iter()
            .map(|&size| match summarize && size > 2 * edge {
                true => Axis { shown: 2 * edge, gap: Some(edge) },
                false => Axis { shown: size, gap: None },
            })
            .collect();
        let mut renderer = Renderer { values: &values, column: &column, linewidth: self.options.linewidth, next: 0 };
        let mut out = String::new();
        renderer.write(&shape, PREFIX.len(), &mut out);
        Ok(out)
    }
}

/// The entries that a summary shows: the first and last `edge` of every longer dimension.
fn summary(t: &Tensor, edge: usize) -> Result<Tensor> {
    let mut dims: Vec<usize> = (0..t.rank()).filter(|&d| t.shape()[d] > 2 * edge).collect();
    // Longest first: the first copy is then the smallest.
    dims.sort_by_key(|&d| std::cmp::Reverse(t.shape()[d]));
    let mut out = t.clone();
    for d in dims {
        let last = (out.shape()[d] - edge) as isize;
        let d = d as isize;
        out = cat(&[&out.narrow(d, 0, edge)?, &out.narrow(d, last, edge)?], d)?;
    }
    Ok(out)
}

/// A dimension as printed: the number of entries, and the position of the dots.
struct Axis {
    shown: usize,
    gap: Option<usize>,
}

struct Renderer<'a> {
    values: &'a Values,
    column: &'a Column,
    linewidth: usize,
    /// The next element, in row-major order of those shown.
    next: usize,
}

impl Renderer<'_> {
    fn element(&mut self) -> String {
        let text = self.column.write(self.values, self.next);
        self.next += 1;
        text
    }

    fn write(&mut self, shape: &[Axis], indent: usize, out: &mut String) {
        match shape {
            [] => out.push_str(&self.element()),
            [axis] => self.write_row(axis, indent, out),
            [axis, inner @ ..] => {
                let separator = format!(",{}{}", "\n".repeat(inner.len()), " ".repeat(indent + 1));
                out.push('[');
                for i in 0..=axis.shown {
                    if axis.gap == Some(i) {
                        out.push_str(if i > 0 { &separator } else { "" });
                        out.push_str("...");
                    }
                    if i < axis.shown {
                        out.push_str(if i > 0 || axis.gap == Some(0) { &separator } else { "" });
                        self.write(inner, indent + 1, out);
                    }
                }
                out.push(']');
            }
        }
    }

    fn write_row(&mut self, axis: &Axis, indent: usize, out: &mut String) {
        let mut cells = Vec::with_capacity(axis.shown + 1);
        for i in 0..=axis.shown {
            if axis.gap == Some(i) {
                cells.push(if axis.shown == 0 { "..." } else { " ..." }.to_string());
            }
            if i < axis.shown {
                cells.push(self.element());
            }
        }
        let per_line = (self.linewidth.saturating_sub(indent) / (self.column.width() + 2)).max(1);
        let lines: Vec<String> = cells.chunks(per_line).map(|line| line.join(", ")).collect();
        out.push('[');
        out.push_str(&lines.join(&format!(",\n{}", " ".repeat(indent + 1))));
        out.push(']');
    }
}
