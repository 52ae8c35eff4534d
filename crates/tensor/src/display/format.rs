//! One width and one notation for all elements of a tensor.

use super::PrintOptions;
use crate::Tensor;
use rushlight_core::{DType, Result};

/// Elements brought to the host.
pub(super) enum Values {
    Float(Vec<f64>),
    Int(Vec<i64>),
    Unsigned(Vec<u64>),
    Bool(Vec<bool>),
    Complex(Vec<f64>, Vec<f64>),
}

impl Values {
    pub(super) fn read(t: &Tensor) -> Result<Self> {
        Ok(match t.dtype() {
            DType::Bool => Values::Bool(t.to_vec()?),
            d if d.is_float() => Values::Float(t.to_vec()?),
            d if d.is_complex() => Values::Complex(t.real()?.to_vec()?, t.imag()?.to_vec()?),
            DType::U64 => Values::Unsigned(t.to_vec()?),
            _ => Values::Int(t.to_vec()?),
        })
    }
}

enum Notation {
    /// Integers and truth values.
    Plain,
    /// Floats that all are whole: `1.`
    Whole,
    Fixed,
    Scientific,
}

/// How the elements are written.
pub(super) struct Column {
    width: usize,
    precision: usize,
    notation: Notation,
    /// The column of imaginary parts; this one is of the real parts.
    imag: Option<Box<Column>>,
}

impl Column {
    /// The narrowest column that shows every element; the rule for floats is PyTorch's and looks only at finite ones
    /// that are not zero.
    pub(super) fn fit(values: &Values, options: &PrintOptions) -> Self {
        let precision = options.precision;
        let mut column = Column { width: 1, precision, notation: Notation::Plain, imag: None };
        match values {
            Values::Bool(v) => column.width = if v.contains(&false) { 5 } else { 4 },
            Values::Unsigned(v) => column.width = v.iter().map(|x| x.to_string().len()).max().unwrap_or(1),
            Values::Int(v) => column.width = v.iter().map(|x| x.to_string().len()).max().unwrap_or(1),
            Values::Complex(re, im) => {
                // PyTorch's rule looks at each part alone.
                let part = |v: &Vec<f64>| Column::fit(&Values::Float(v.clone()), options);
                let (mut real, imag) = (part(re), part(im));
                real.imag = Some(Box::new(imag));
                return real;
            }
            Values::Float(v) => {
                let telling: Vec<f64> = v.iter().copied().filter(|x| x.is_finite() && *x != 0.0).collect();
                let largest = telling.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                let smallest = telling.iter().fold(f64::INFINITY, |m, x| m.min(x.abs()));
                let whole = telling.iter().all(|x| *x == x.ceil());
                let wide = largest / smallest > 1000.0 || largest > 1e8 || smallest < 1e-4;
                column.notation = match !telling.is_empty() && options.sci_mode.unwrap_or(wide) {
                    true => Notation::Scientific,
                    false if whole => Notation::Whole,
                    false => Notation::Fixed,
                };
                column.width = telling.iter().map(|&x| column.float(x).len()).max().unwrap_or(1);
            }
        }
        column
    }

    /// Characters of an element.
    pub(super) fn width(&self) -> usize {
        self.width + self.imag.as_ref().map_or(0, |imag| imag.width + 1)
    }

    /// Element `i`, right-aligned.
    pub(super) fn write(&self, values: &Values, i: usize) -> String {
        if let (Values::Complex(re, im), Some(column)) = (values, &self.imag) {
            let (re, im) = (re.get(i).copied().unwrap_or(0.0), im.get(i).copied().unwrap_or(0.0));
            let real = format!("{:>width$}", self.float(re), width = self.width);
            let text = column.float(im);
            // A sign of its own, then the part, as wide as the widest.
            let text = format!("{text:>width$}", width = column.width);
            let text = text.trim_start();
            return match text.starts_with('-') {
                true => format!("{real}{text}j"),
                false => format!("{real}+{text}j"),
            };
        }
        let text = match values {
            Values::Complex(..) => String::new(),
            Values::Bool(v) => if v.get(i) == Some(&true) { "True" } else { "False" }.to_string(),
            Values::Unsigned(v) => v.get(i).map(|x| x.to_string()).unwrap_or_default(),
            Values::Int(v) => v.get(i).map(|x| x.to_string()).unwrap_or_default(),
            Values::Float(v) => v.get(i).map(|&x| self.float(x)).unwrap_or_default(),
        };
        format!("{text:>width$}", width = self.width)
    }

    fn float(&self, x: f64) -> String {
        if x.is_nan() {
            return "nan".to_string();
        }
        if x.is_infinite() {
            return if x > 0.0 { "inf" } else { "-inf" }.to_string();
        }
        match self.notation {
            Notation::Whole => format!("{x:.0}."),
            Notation::Scientific => scientific(x, self.precision),
            Notation::Plain | Notation::Fixed => format!("{x:.*}", self.precision),
        }
    }
}

/// C's `%.*e`: a sign and at least two digits in the exponent.
fn scientific(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}
