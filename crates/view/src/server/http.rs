//! A minimal HTTP/1.1 server: one GET or HEAD per connection, bounded in size and time, and POST for notes alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum size of a request with its headers.
const MAX_REQUEST: usize = 16 << 10;
/// Maximum size of a note.
const MAX_BODY: usize = 64 << 10;
/// Timeouts for receiving a request and for sending a response.
const REQUEST_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether the request is HEAD.
    pub head: bool,
    /// The path, decoded.
    pub path: String,
    /// Names and values after `?`, decoded.
    pub query: Vec<(String, String)>,
    /// The header `Host`.
    pub host: Option<String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// Cookies.
    pub cookies: Vec<(String, String)>,
    /// Whether the request is POST with the header that only this page sends: browsers do not let other sites add one.
    pub writes: bool,
    /// The length of the body that follows.
    length: usize,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A value of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// An answer.
#[derive(Debug)]
pub struct Response {
    status: u16,
    kind: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Response {
    /// A response with a status.
    pub fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, kind, headers: Vec::new(), body: body.into() }
    }

    /// A page or part of it.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.into())
    }

    /// JSON.
    pub fn json(value: &serde_json::Value) -> Self {
        Self::new(200, "application/json", value.to_string())
    }

    /// Adds a header; its value cannot contain newlines.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.chars().filter(|c| !c.is_control()).collect()));
        self
    }

    /// A redirect.
    pub fn redirect(to: &str) -> Self {
        Self::text(303, "").header("Location", to)
    }

    #[cfg(test)]
    pub fn status(&self) -> u16 {
        self.status
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            303 => "See Other",
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            410 => "Gone",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Error",
        }
    }

    /// The status line and the headers. Scripts, styles and data may only come from this server, and no other page may
    /// frame it.
    pub fn head(&self, length: Option<usize>) -> String {
        let mut head = format!("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", self.status, self.reason(), self.kind);
        if let Some(length) = length {
            head += &format!("Content-Length: {length}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                 media-src 'self' data:; \
                 connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n\
                 X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
                 Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n";
        head
    }

    /// Sends the answer.
    pub fn send(&self, stream: &mut TcpStream, head_only: bool) -> std::io::Result<()> {
        let mut bytes = self.head(Some(self.body.len())).into_bytes();
        if !head_only {
            bytes.extend(&self.body);
        }
        write_all(stream, &bytes, ANSWER_TIME)
    }
}

/// Writes everything within a timeout, however slowly the client reads.
pub fn write_all(stream: &mut TcpStream, mut bytes: &[u8], time: Duration) -> std::io::Result<()> {
    let deadline = Instant::now() + time;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.write(&bytes[..bytes.len().min(64 << 10)]) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads a request. The error is the response to send; `None` if the connection was closed.
pub fn read(stream: &mut TcpStream) -> Result<Request, Option<Response>> {
    let deadline = Instant::now() + REQUEST_TIME;
    let mut bytes = Vec::new();
    let mut buffer = [0u8; 4096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_REQUEST {
            return Err(Some(Response::text(431, "the request is too long")));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).is_err() {
            return Err(None);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(None),
            Ok(n) => bytes.extend(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(None),
        }
    };
    let mut request = parse(&bytes[..end]).map_err(Some)?;
    request.body = bytes.split_off(end + 4);
    while request.body.len() < request.length {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).is_err() {
            return Err(None);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(None),
            Ok(n) => request.body.extend(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(None),
        }
    }
    request.body.truncate(request.length);
    Ok(request)
}

/// Parses a request from its lines, without the empty one.
pub fn parse(bytes: &[u8]) -> Result<Request, Response> {
    let bad = |what: &str| Response::text(400, format!("not an HTTP/1.1 request: {what}"));
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not text"))?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("its first line is not METHOD TARGET VERSION"));
    };
    if !version.starts_with("HTTP/1.") {
        return Err(bad("the version is another"));
    }
    let head = match method {
        "GET" => false,
        "HEAD" => true,
        "POST" if target.starts_with("/api/notes?") => false,
        _ => return Err(Response::text(405, "only GET is answered").header("Allow", "GET, HEAD")),
    };
    if !target.starts_with('/') {
        return Err(bad("the target is not a path"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (mut request, posts) = (Request { head, path: decode(path, false), ..Request::default() }, method == "POST");
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    request.query = pairs.map(|(name, value)| (decode(name, true), decode(value, true))).collect();
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Err(bad("a header has no colon")) };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "host" if request.host.is_some() => return Err(bad("there are two hosts")),
            "host" => request.host = Some(value.to_owned()),
            "authorization" => request.authorization = Some(value.to_owned()),
            "cookie" => {
                let pairs = value.split(';').filter_map(|pair| pair.trim().split_once('='));
                request.cookies.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            "content-length" if posts => match value.parse() {
                Ok(length) if length <= MAX_BODY => request.length = length,
                _ => return Err(Response::text(400, "a note has 64 KiB at most")),
            },
            "x-rushlight" => request.writes = posts,
            "content-length" if value != "0" => return Err(Response::text(400, "a request has no body here")),
            "transfer-encoding" => return Err(Response::text(400, "a request has no body here")),
            _ => {}
        }
    }
    Ok(request)
}

/// Percent-decodes a text; in a query `+` is a space.
fn decode(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let digits = bytes.get(i + 1..i + 3).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        match (bytes[i], byte.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                found.push(byte);
                i += 3;
                continue;
            }
            (b'+', _) if plus => found.push(b' '),
            (byte, _) => found.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&found).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let request = parse(b"GET /api/x%20y?tag=a%2Fb+c&n HTTP/1.1\r\nHost: h:1\r\nCookie: a=b; c=d=e").unwrap();
        assert_eq!(
            (request.path.as_str(), request.query("tag"), request.query("n")),
            ("/api/x y", Some("a/b c"), Some(""))
        );
        assert_eq!((request.host.as_deref(), request.cookies.len()), (Some("h:1"), 2));
        assert_eq!(request.cookies[1], ("c".to_owned(), "d=e".to_owned()));
        let status = |text: &[u8]| parse(text).err().map(|response| response.status());
        assert_eq!(status(b"POST / HTTP/1.1"), Some(405));
        assert!(parse(b"POST /api/notes?run=1 HTTP/1.1\r\nX-Rushlight: 1\r\nContent-Length: 2").unwrap().writes);
        assert!(!parse(b"POST /api/notes?run=1 HTTP/1.1\r\nContent-Length: 2").unwrap().writes);
        assert!(!parse(b"GET /api/notes?run=1 HTTP/1.1\r\nX-Rushlight: 1").unwrap().writes);
        assert_eq!(status(b"POST /api/notes?run=1 HTTP/1.1\r\nContent-Length: 99999"), Some(400));
        assert_eq!(status(b"GET http://x/ HTTP/1.1"), Some(400));
        assert_eq!(status(b"GET / HTTP/2"), Some(400));
        assert_eq!(status(b"GET / HTTP/1.1\r\nContent-Length: 5"), Some(400));
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b"), Some(400));
        for bad in [&b""[..], b"\xff", b"GET", b"GET /", b"GET / HTTP/1.1 x", b"GET / HTTP/1.1\r\nno colon"] {
            assert_eq!(status(bad), Some(400), "{bad:?}");
        }
        assert_eq!(decode("%", true) + &decode("%zz%4", true) + &decode("%+1", false), "%%zz%4%+1");
    }

    #[test]
    fn headers_have_no_second_line() {
        let head = Response::redirect("/x\r\nSet-Cookie: a=b").head(Some(0));
        assert!(head.contains("Location: /xSet-Cookie: a=b\r\n"), "{head}");
    }
}
