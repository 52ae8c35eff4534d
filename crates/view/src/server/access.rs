//! Access control: requests from this machine, or with the token.

use super::http::{Request, Response};
use std::io::Read;
use std::net::IpAddr;

/// The credentials that a request needs.
pub struct Access {
    token: Option<String>,
    port: u16,
}

/// Constant-time equality of texts.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0u8, |all, (x, y)| all | std::hint::black_box(x ^ y)) == 0
}

/// 128 random bits as a text.
pub fn random_token() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl Access {
    /// With a token every request needs it; without, requests from browsers on this machine are allowed.
    pub fn new(token: Option<String>, port: u16) -> Self {
        Self { token, port }
    }

    /// Cookies do not depend on the port: each server uses its own cookie name.
    fn cookie(&self) -> String {
        format!("rushlight-ui-{}", self.port)
    }

    /// `None` if the request is allowed, otherwise the response.
    pub fn check(&self, request: &Request) -> Option<Response> {
        let Some(token) = &self.token else {
            // DNS rebinding: another site could resolve its name to this machine; the browser then sends that name.
            return (!is_local(request.host.as_deref())).then(|| {
                Response::text(421, "this server answers to localhost only; start it with --token for other names")
            });
        };
        let is_token = |text: &str| same(text.as_bytes(), token.as_bytes());
        let cookie = self.cookie();
        let bearer = request.authorization.as_deref().and_then(|text| text.strip_prefix("Bearer "));
        if request.cookies.iter().any(|(name, value)| *name == cookie && is_token(value))
            || bearer.is_some_and(is_token)
        {
            // Redirects to an address without the token, which keeps it out of the browser's history.
            return (request.path == "/" && request.query("token").is_some()).then(|| Response::redirect("/"));
        }
        match request.query("token") {
            Some(text) if is_token(text) => {
                let value = format!("{cookie}={token}; HttpOnly; SameSite=Strict; Path=/");
                Some(Response::redirect("/").header("Set-Cookie", &value))
            }
            given if request.path == "/" => {
                let page = include_str!("../page/login.html");
                let note = if given.is_some() { "This is not the token." } else { "" };
                Some(Response::new(401, "text/html; charset=utf-8", page.replace("<!--note-->", note)))
            }
            // The login page uses the same style.
            _ if request.path == "/style.css" => None,
            _ => Some(Response::text(401, "the token is missing or wrong")),
        }
    }
}

/// Whether a host is a local name of this machine.
fn is_local(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::super::http::parse;
    use super::*;

    fn status(access: &Access, text: &str) -> Option<u16> {
        access.check(&parse(text.as_bytes()).unwrap_or_default()).map(|response| response.status())
    }

    #[test]
    fn local_names_only() {
        let access = Access::new(None, 1);
        for host in ["localhost:6060", "127.0.0.1", "[::1]:80", "LOCALHOST"] {
            assert_eq!(status(&access, &format!("GET / HTTP/1.1\r\nHost: {host}")), None, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "[::2]", ""] {
            assert_eq!(status(&access, &format!("GET / HTTP/1.1\r\nHost: {host}")), Some(421), "{host}");
        }
        assert_eq!(status(&access, "GET / HTTP/1.1"), Some(421));
    }

    #[test]
    fn tokens() {
        let access = Access::new(Some("abc".into()), 7);
        let ask = |target: &str, header: &str| status(&access, &format!("GET {target} HTTP/1.1\r\nHost: x{header}"));
        assert_eq!(ask("/", ""), Some(401));
        assert_eq!(ask("/api/runs", ""), Some(401));
        assert_eq!(ask("/?token=abd", ""), Some(401));
        assert_eq!(ask("/?token=abc", ""), Some(303));
        assert_eq!(ask("/api/runs", "\r\nCookie: rushlight-ui-7=abc"), None);
        assert_eq!(ask("/api/runs", "\r\nCookie: rushlight-ui-8=abc"), Some(401));
        assert_eq!(ask("/api/runs", "\r\nAuthorization: Bearer abc"), None);
        assert_eq!(ask("/api/runs", "\r\nAuthorization: Bearer "), Some(401));
        assert_eq!(ask("/?token=abc", "\r\nCookie: rushlight-ui-7=abc"), Some(303));
        let (a, b) = (random_token().unwrap(), random_token().unwrap());
        assert!(a.len() == 32 && a != b);
    }
}
