//! From text to tokens. Indentation becomes `Indent` and `Dedent`.

use rushlight_core::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Int(i64),
    Float(f64),
    Str(String),
    /// An operator or bracket.
    Sign(&'static str),
    Newline,
    Indent,
    Dedent,
    End,
}

/// Longest first.
const SIGNS: [&str; 38] = [
    "**=", "//=", "->", "==", "!=", "<=", ">=", "//", "**", "<<", ">>", "+=", "-=", "*=", "/=", "|=", "&=", "+", "-",
    "*", "/", "%", "@", "&", "|", "^", "~", "<", ">", "(", ")", "[", "]", "{", "}", ",", ":", ".",
];

/// Tokens with their lines.
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, usize)>> {
    let mut out = Vec::new();
    let mut indents = vec![0usize];
    let mut depth = 0usize;
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let fail = |what: String| Err(Error::value(format!("line {number}: {what}")));
        let body = line.trim_start_matches(' ');
        if depth == 0 {
            if body.is_empty() || body.starts_with('#') {
                continue;
            }
            let indent = line.len() - body.len();
            if indent > *indents.last().unwrap_or(&0) {
                if indents.len() > 200 {
                    return fail("blocks are nested too deeply".into());
                }
                indents.push(indent);
                out.push((Token::Indent, number));
            }
            while indent < *indents.last().unwrap_or(&0) {
                indents.pop();
                out.push((Token::Dedent, number));
            }
            if indent != *indents.last().unwrap_or(&0) {
                return fail("the indentation matches no block".into());
            }
        }
        let mut rest = body;
        loop {
            rest = rest.trim_start_matches([' ', '\t']);
            let Some(first) = rest.chars().next() else { break };
            if first == '#' {
                break;
            }
            if first.is_alphabetic() || first == '_' {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                out.push((Token::Name(rest[..end].to_string()), number));
                rest = &rest[end..];
                continue;
            }
            if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
                let (token, length) = match self::number(rest) {
                    Some(found) => found,
                    None => return fail(format!("malformed number '{}'", short(rest))),
                };
                out.push((token, number));
                rest = &rest[length..];
                continue;
            }
            if first == '"' || first == '\'' {
                let (text, length) = match string(rest, first) {
                    Some(found) => found,
                    None => return fail("a string that does not end".into()),
                };
                out.push((Token::Str(text), number));
                rest = &rest[length..];
                continue;
            }
            let sign = match SIGNS.iter().chain(&["="]).find(|s| rest.starts_with(**s)) {
                Some(sign) => *sign,
                None => return fail(format!("unexpected '{}'", short(rest))),
            };
            match sign {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            out.push((Token::Sign(sign), number));
            rest = &rest[sign.len()..];
        }
        if depth == 0 {
            out.push((Token::Newline, number));
        }
    }
    let end = text.lines().count();
    out.extend(indents[1..].iter().map(|_| (Token::Dedent, end)));
    out.push((Token::End, end));
    Ok(out)
}

fn short(text: &str) -> String {
    text.chars().take(20).collect()
}

fn number(text: &str) -> Option<(Token, usize)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut float = false;
    if bytes.get(end) == Some(&b'.') {
        float = true;
        end += 1;
        end += digits(end);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let more = digits(end + 1 + sign);
        if more > 0 {
            float = true;
            end += 1 + sign + more;
        }
    }
    let token = if float { Token::Float(text[..end].parse().ok()?) } else { Token::Int(text[..end].parse().ok()?) };
    Some((token, end))
}

/// A string's contents, and its length with quotes. Bytes given as `\x…` and octal escapes are UTF-8 units.
fn string(text: &str, quote: char) -> Option<(String, usize)> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b if b == quote as u8 => return Some((String::from_utf8_lossy(&out).into_owned(), at + 1)),
            b'\\' => {
                at += 1;
                let escape = *bytes.get(at)?;
                at += 1;
                match escape {
                    b'n' => out.push(b'\n'),
                    b't' => out.push(b'\t'),
                    b'r' => out.push(b'\r'),
                    b'a' => out.push(7),
                    b'b' => out.push(8),
                    b'f' => out.push(12),
                    b'v' => out.push(11),
                    b'x' => {
                        out.push(u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?);
                        at += 2;
                    }
                    b'0'..=b'7' => {
                        let end = (at..at + 2).take_while(|&i| matches!(bytes.get(i), Some(b'0'..=b'7'))).count();
                        out.push(u16::from_str_radix(text.get(at - 1..at + end)?, 8).ok()? as u8);
                        at += end;
                    }
                    other => out.push(other),
                }
            }
            other => {
                out.push(other);
                at += 1;
            }
        }
    }
}
