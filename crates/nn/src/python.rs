//! Values as Python prints them, for [`Module::repr`](crate::Module::repr).

/// `True` or `False`.
pub(crate) fn boolean(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A float with Python's digits: `1e-05`, `0.1`, `1.0`.
pub(crate) fn float(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value.is_nan() {
        return "nan".to_owned();
    }
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, power) = exponent.strip_prefix('-').map_or(("+", exponent), |power| ("-", power));
        return format!("{digits}e{sign}{power:0>2}");
    }
    format!("{value:?}")
}

/// A float or `None`.
pub(crate) fn optional_float(value: Option<f64>) -> String {
    value.map_or_else(|| "None".to_owned(), float)
}

/// A tuple, with the comma that Python puts after a single item.
pub(crate) fn tuple<T: ToString>(items: &[T]) -> String {
    match items {
        [one] => format!("({},)", one.to_string()),
        _ => format!("({})", items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// One item as itself, several as a tuple: an argument that was given either way.
pub(crate) fn one_or_tuple<T: ToString>(items: &[T]) -> String {
    match items {
        [one] => one.to_string(),
        _ => tuple(items),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_pythons_digits() {
        let cases = [
            (1e-5, "1e-05"),
            (0.1, "0.1"),
            (1.0, "1.0"),
            (-2.5e-7, "-2.5e-07"),
            (0.0, "0.0"),
            (1e16, "1e+16"),
            (1e-4, "0.0001"),
        ];
        for (value, text) in cases {
            assert_eq!(float(value), text);
        }
        assert_eq!(float(f64::NEG_INFINITY), "-inf");
        assert_eq!(float(1.0 / 3.0), "0.3333333333333333");
        assert_eq!(optional_float(None), "None");
    }

    #[test]
    fn tuples_have_pythons_commas() {
        assert_eq!(tuple(&[3]), "(3,)");
        assert_eq!(tuple(&[3, 5]), "(3, 5)");
        assert_eq!(one_or_tuple(&[3]), "3");
        assert_eq!(one_or_tuple(&[3, 5]), "(3, 5)");
    }
}
