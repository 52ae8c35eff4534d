//! Rows of the op table as C functions.

use rushlight_core::Pointwise;
use rushlight_core::rows::Class;

/// A row's value or derivative as a C function.
pub struct RowText {
    /// The function's definition, in terms of the type `R`.
    pub text: String,
    /// Functions of `functions.cl` that are compiled only if a row calls them.
    pub needs: Vec<&'static str>,
    pub inputs: usize,
    pub params: usize,
    /// Whether the function returns a boolean, as `int`.
    pub truth: bool,
    /// Whether its last argument is the width of the integers, which shifts need.
    pub bits: bool,
}

impl RowText {
    /// A row's value.
    pub fn value(op: Pointwise, name: &str) -> Self {
        let truth = matches!(op.class(), Class::Compare | Class::Test);
        Self::new(op, op.text(), op.inputs().to_vec(), truth, name)
    }

    /// Its derivative by an input: a function of the gradient, the three inputs and the output.
    pub fn derivative(op: Pointwise, wrt: usize, name: &str) -> Self {
        let text = op.grad_text().get(wrt).copied().unwrap_or("ZERO");
        let mut names = vec!["dy"];
        names.extend((0..3).map(|i| op.inputs().get(i).copied().unwrap_or(["", "unused1", "unused2"][i])));
        names.push("y");
        Self::new(op, text, names, false, name)
    }

    /// A call, of inputs `x0`, `x1`, … and parameters `p0`, `p1`, …
    pub fn call(&self, name: &str, bits: &str) -> String {
        let inputs = (0..self.inputs).map(|i| format!("x{i}"));
        let params = (0..self.params).map(|i| format!("(R)p{i}"));
        let bits = self.bits.then(|| bits.to_string());
        format!("{name}({})", inputs.chain(params).chain(bits).collect::<Vec<_>>().join(", "))
    }

    fn new(op: Pointwise, text: &str, names: Vec<&'static str>, truth: bool, name: &str) -> Self {
        let arguments: Vec<String> = names.iter().chain(op.params()).map(|name| format!("R {name}")).collect();
        let bits = op.class() == Class::Bits;
        let arguments = arguments.join(", ") + if bits { ", int bits" } else { "" };
        let text = calls_renamed(text);
        let needs = ["normal_cdf", "erfinv", "digamma", "polygamma"];
        let needs = needs.into_iter().filter(|name| text.contains(&format!("rl_{name}("))).collect();
        let result = if truth { "int" } else { "R" };
        let text = format!("inline {result} {name}({arguments}) {{ {} }}", returning(&text));
        Self { text, needs, inputs: names.len(), params: op.params().len(), truth, bits }
    }
}

/// A row's text with every called function renamed: C has others of the same names.
pub fn calls_renamed(text: &str) -> String {
    let text = ["and", "or", "xor", "shl", "shr"]
        .iter()
        .fold(text.replace('\n', " "), |t, name| t.replace(&format!("a.{name}(b)"), &format!("bits_{name}(a, b)")));
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '_' || (c == '.' && word.starts_with(|w: char| w.is_ascii_digit())) {
            word.push(c);
            continue;
        }
        if c == '(' && word.starts_with(|w: char| w.is_ascii_alphabetic()) {
            out += "rl_";
        }
        out += &std::mem::take(&mut word);
        out.push(c);
    }
    out + &word
}

/// A row's text as the body of a C function: rows are sequences of `let` and a final expression.
fn returning(text: &str) -> String {
    match text.rsplit_once(';') {
        Some((before, last)) => format!("{before}; return {last};"),
        None => format!("return {text};"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_get_names_of_ours() {
        assert_eq!(calls_renamed("dy * (a - exp(b))"), "dy * (a - rl_exp(b))");
        assert_eq!(calls_renamed("a.and(b)"), "rl_bits_and(a, b)");
        assert_eq!(calls_renamed("max(lit(1e-12), x2)"), "rl_max(rl_lit(1e-12), x2)");
        assert_eq!(returning("let d = a; d * d"), "let d = a; return  d * d;");
    }
}
