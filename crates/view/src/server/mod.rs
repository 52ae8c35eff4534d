//! The server behind the page: threads over `std::net`, bounded in number, size and time.

mod access;
mod answers;
mod export;
pub mod http;

pub use access::{Access, random_token};
pub use export::html;

use crate::runs::Store;
use http::{Request, Response};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Maximum connections, and among those, pages with live updates.
const MAX_CONNECTIONS: usize = 96;
const MAX_LIVE: usize = 48;
/// Interval of keep-alive messages to a page: proxies cut idle connections.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Minimum interval between two messages to a page.
const PAUSE: Duration = Duration::from_millis(300);

/// Answers requests about a store.
pub struct Server {
    store: Arc<Store>,
    access: Access,
    connections: AtomicUsize,
    live: AtomicUsize,
}

/// A connection slot, released when dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let place = Self(count);
        // Dropping a failed attempt releases its slot.
        (count.fetch_add(1, Relaxed) < most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Server {
    /// For a store.
    pub fn new(store: Arc<Store>, access: Access) -> Arc<Self> {
        Arc::new(Self { store, access, connections: AtomicUsize::new(0), live: AtomicUsize::new(0) })
    }

    /// Answers until the process ends.
    pub fn run(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            // Out of file descriptors: temporary.
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let server = self.clone();
            let thread = std::thread::Builder::new().name("rushlight-ui".into()).stack_size(512 << 10);
            let started = thread.spawn(move || match Place::take(&server.connections, MAX_CONNECTIONS) {
                Some(_place) => server.connection(&mut stream),
                None => {
                    let _ = Response::text(503, "too many connections").send(&mut stream, false);
                }
            });
            if started.is_err() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn connection(&self, stream: &mut TcpStream) {
        let _ = stream.set_nodelay(true);
        let (response, head) = match http::read(stream) {
            Ok(request) => match self.access.check(&request) {
                Some(refusal) => (refusal, request.head),
                None if request.path == "/api/live" && !request.head => return self.keep_current(stream),
                None => (self.answer(&request), request.head),
            },
            Err(Some(response)) => (response, false),
            Err(None) => return,
        };
        let _ = response.send(stream, head);
    }

    fn answer(&self, request: &Request) -> Response {
        const HTML: &str = "text/html; charset=utf-8";
        const SCRIPT: &str = "text/javascript; charset=utf-8";
        match request.path.as_str() {
            "/" => Response::new(200, HTML, include_str!("../page/index.html")),
            "/style.css" => Response::new(200, "text/css; charset=utf-8", include_str!("../page/style.css")),
            "/data.js" => Response::new(200, SCRIPT, include_str!("../page/data.js")),
            "/chart.js" => Response::new(200, SCRIPT, include_str!("../page/chart.js")),
            "/text.js" => Response::new(200, SCRIPT, include_str!("../page/text.js")),
            "/group.js" => Response::new(200, SCRIPT, include_str!("../page/group.js")),
            "/media.js" => Response::new(200, SCRIPT, include_str!("../page/media.js")),
            "/views.js" => Response::new(200, SCRIPT, include_str!("../page/views.js")),
            "/app.js" => Response::new(200, SCRIPT, include_str!("../page/app.js")),
            "/favicon.svg" => Response::new(200, "image/svg+xml", include_str!("../page/favicon.svg")),
            path => match path.strip_prefix("/api/") {
                Some(what) => answers::answer(&self.store, what, request),
                None => Response::text(404, "there is no such page"),
            },
        }
    }

    /// Server-sent events: the runs that have changed.
    fn keep_current(&self, stream: &mut TcpStream) {
        let Some(_place) = Place::take(&self.live, MAX_LIVE) else {
            let _ = Response::text(503, "too many pages are open").send(stream, false);
            return;
        };
        let head = Response::new(200, "text/event-stream", Vec::new()).head(None);
        if http::write_all(stream, head.as_bytes(), HEARTBEAT).is_err() {
            return;
        }
        let mut version = u64::MAX;
        loop {
            let message = {
                let state = self.store.wait(version, HEARTBEAT);
                if state.version == version {
                    ": nothing new\n\n".to_owned()
                } else {
                    version = state.version;
                    let runs: serde_json::Map<String, serde_json::Value> =
                        state.runs.values().map(|run| (run.id.to_string(), run.seq.into())).collect();
                    let data = serde_json::json!({"version": version, "loaded": state.loaded, "runs": runs});
                    format!("event: change\ndata: {data}\n\n")
                }
            };
            if http::write_all(stream, message.as_bytes(), HEARTBEAT).is_err() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
