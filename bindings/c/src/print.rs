//! LibTorch's text form of tensors: `std::cout << tensor`.

use crate::dtype;
use crate::handle::{borrow, put, rl_tensor};
use crate::status::rl_status;
use rushlight_core::{DType, Device, Result};
use rushlight_tensor::Tensor;
use std::ffi::{CString, c_char};
use std::fmt::Write;

/// How the numbers of a slice are written.
struct Format {
    scale: f64,
    width: usize,
    style: Style,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// C++'s default: six significant digits.
    Plain,
    /// Four digits after the point.
    Fixed,
    /// Four digits after the point and an exponent.
    Scientific,
}

/// Digits before the point; one for zero.
fn exponent(value: f64) -> i32 {
    if value == 0.0 { 1 } else { value.log10().floor() as i32 + 1 }
}

impl Format {
    fn of(values: &[f64]) -> Format {
        let plain = Format { scale: 1.0, width: 0, style: Style::Plain };
        if values.is_empty() {
            return plain;
        }
        let whole = values.iter().all(|v| !v.is_finite() || v.ceil() == *v);
        let finite = || values.iter().map(|v| v.abs()).filter(|v| v.is_finite());
        let low = finite().reduce(f64::min).map_or(1, exponent);
        let high = finite().reduce(f64::max).map_or(1, exponent);
        if whole {
            return match high > 9 {
                true => Format { width: 11, style: Style::Scientific, ..plain },
                false => Format { width: high as usize + 1, ..plain },
            };
        }
        if high - low > 4 {
            let width = if high.abs() > 99 || low.abs() > 99 { 12 } else { 11 };
            return Format { width, style: Style::Scientific, ..plain };
        }
        match high {
            ..=-1 | 6.. => Format { scale: 10f64.powi(high - 1), width: 7, style: Style::Fixed },
            0 => Format { width: 7, style: Style::Fixed, ..plain },
            _ => Format { width: high as usize + 6, style: Style::Fixed, ..plain },
        }
    }

    fn write(&self, value: f64, out: &mut String) {
        let text = number(value / self.scale, self.style);
        let _ = write!(out, "{text:>width$}", width = self.width);
    }
}

/// A number as C++ streams write it.
fn number(value: f64, style: Style) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    match style {
        Style::Fixed => format!("{value:.4}"),
        Style::Scientific => scientific(value, 4),
        Style::Plain => significant(value, 6),
    }
}

/// `1.2346e+05`: C's exponent has a sign and two digits.
fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// C's `%g`: so many significant digits without trailing zeros.
fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let rounded = format!("{value:.precision$e}", precision = digits - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let text = scientific(value, digits - 1);
        let (mantissa, rest) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{rest}", trim(mantissa));
    }
    trim(&format!("{value:.precision$}", precision = (digits as i32 - 1 - exponent) as usize))
}

/// The shortest text that reads back as the number, with an exponent for very small and very large ones.
fn shortest(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() || magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        return if value.is_finite() { format!("{value}") } else { number(value, Style::Plain) };
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The scale's line: all numbers below are multiplied by it.
fn scale_line(scale: f64, out: &mut String) {
    let _ = writeln!(out, "{} *", shortest(scale));
}

/// A matrix in lines of at most `linesize` characters; columns that do not fit follow below.
fn matrix(values: &[f64], rows: usize, columns: usize, linesize: usize, indent: usize, out: &mut String) {
    let format = Format::of(values);
    let pad = " ".repeat(indent);
    let per_line = (linesize.saturating_sub(indent) / (format.width + 1)).max(1);
    let mut first = 0;
    while first < columns {
        let last = (first + per_line).min(columns);
        if per_line < columns {
            if first != 0 {
                out.push('\n');
            }
            let _ = write!(out, "Columns {} to {}", first + 1, last);
            out.push_str(&pad);
        }
        if format.scale != 1.0 {
            scale_line(format.scale, out);
            out.push_str(&pad);
        }
        for row in 0..rows {
            for column in first..last {
                format.write(values[row * columns + column], out);
                out.push(if column + 1 == last { '\n' } else { ' ' });
            }
            if row + 1 != rows {
                out.push_str(&pad);
                if format.scale != 1.0 {
                    out.push(' ');
                }
            }
        }
        first = last;
    }
}

/// The text form.
fn print(tensor: &Tensor, linesize: usize) -> Result<String> {
    let mut out = String::new();
    let held = tensor.detach().to(Device::Cpu)?;
    let values: Vec<f64> = held.to_dtype(DType::F64)?.contiguous()?.to_vec()?;
    match *tensor.shape() {
        [] => {
            let _ = writeln!(out, "{}", shortest(values[0]));
        }
        [length] => {
            if length > 0 {
                let format = Format::of(&values);
                if format.scale != 1.0 {
                    scale_line(format.scale, &mut out);
                }
                for &value in &values {
                    format.write(value, &mut out);
                    out.push('\n');
                }
            }
        }
        [rows, columns] => {
            if rows * columns > 0 {
                matrix(&values, rows, columns, linesize, 0, &mut out);
            }
        }
        [ref outer @ .., rows, columns] => {
            // The first index runs fastest.
            let count: usize = if rows * columns == 0 { 0 } else { outer.iter().product() };
            for number in 0..count {
                if number > 0 {
                    out.push('\n');
                }
                let (mut rest, mut at) = (number, 0);
                let place: Vec<usize> = outer.iter().map(|&size| (rest % size, rest /= size).0).collect();
                out.push('(');
                for (&p, &size) in place.iter().zip(outer) {
                    at = at * size + p;
                    let _ = write!(out, "{},", p + 1);
                }
                out.push_str(".,.) = \n");
                let slice = &values[at * rows * columns..(at + 1) * rows * columns];
                matrix(slice, rows, columns, linesize, 1, &mut out);
            }
        }
    }
    let engine = match tensor.device() {
        Device::Cpu => "CPU",
        Device::Cuda(_) => "CUDA",
        Device::Xpu(_) => "XPU",
        Device::Meta => "Meta",
    };
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    let _ = write!(out, "[ {engine}{}Type{{{}}} ]", dtype::name(tensor.dtype()), sizes.join(","));
    Ok(out)
}

api! {
    /// The tensor as LibTorch prints it, in lines of at most `linesize` characters; rl_string_free frees it.
    fn rl_tensor_print(tensor: *const rl_tensor, linesize: usize, out: *mut *mut c_char) -> rl_status, try {
        // SAFETY: a live handle and a place for the result.
        unsafe {
            let text = print(&*borrow(tensor)?, linesize)?;
            put(out, CString::new(text).unwrap_or_default().into_raw())
        }
    }
    /// Frees a string of this library; null is allowed.
    fn rl_string_free(text: *mut c_char) -> (), (()) {
        if !text.is_null() {
            // SAFETY: made by `CString::into_raw`, and not used again.
            drop(unsafe { CString::from_raw(text) });
        }
    }
}
