//! `rushlight ui`: the command line.

use crate::alerts::Alerts;
use crate::runs::Store;
use crate::server::{Access, Server, html, random_token};
use rushlight_settings::did_you_mean;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

const USAGE: &str = "Usage: rushlight ui [OPTIONS] [DIR]

Shows the training runs below DIR in a browser, as they grow: curves, system figures, ranks, hyperparameters, histograms, images,
texts and logs. A run is a directory with metrics.jsonl (the Trainer's), TensorBoard event files of any program, or metrics.csv.
DIR is `runs` if there is one, else this directory. An exported model instead of DIR (.rlm, .onnx, .pt2, a TorchScript .pt) is drawn in the tab Models.

  --port PORT  Port; 6060 if not said, or the next one that is free
  --host ADDR  Address to listen at; 127.0.0.1 if not said: this machine only
  --alert CMD  Starts a shell command when a run that is watched here dies, fails, diverges (a loss is not a number) or stalls.
               It finds RUSHLIGHT_ALERT (died, lost, failed, diverged, stalled), RUSHLIGHT_ALERT_RUN and RUSHLIGHT_ALERT_TEXT; for a
               webhook: --alert 'curl -d \"$RUSHLIGHT_ALERT_RUN $RUSHLIGHT_ALERT\" https://example.org/hook'
  --stall S    Seconds without a value after which a run has stalled; 600 if not said
  --export F   Writes the runs as one HTML file, which needs no server, and ends
  --no-token   Needs no token on this machine. Other users of it can then see the runs

Browsers need a token: $RUSHLIGHT_UI_TOKEN (16 characters or more), else one made for this start. It is printed with the address on a terminal; elsewhere it
goes to a file that only you can read, so that no log has it.";

/// The default port.
const PORT: u16 = 6060;
/// Minimum length of a token: shorter ones could be guessed.
const SHORTEST_TOKEN: usize = 16;

struct Request {
    directory: PathBuf,
    host: String,
    port: Option<u16>,
    no_token: bool,
    alert: Option<String>,
    stall: f64,
    export: Option<PathBuf>,
}

/// Parses the arguments; the error is a message and an exit code.
fn read(arguments: &[OsString]) -> Result<Request, (String, u8)> {
    let wrong = |text: String| (format!("rushlight ui: {text}; see rushlight ui --help"), 2);
    let mut request = Request {
        directory: PathBuf::new(),
        host: "127.0.0.1".into(),
        port: None,
        no_token: false,
        alert: None,
        stall: 600.0,
        export: None,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (text.clone().into_owned(), None),
        };
        let mut value = || {
            let next = inline.clone().or_else(|| words.next().map(|w| w.to_string_lossy().into_owned()));
            next.ok_or_else(|| wrong(format!("{name} lacks its value")))
        };
        match name.as_str() {
            "-h" | "--help" => return Err((USAGE.into(), 0)),
            "--host" => request.host = value()?,
            "--export" => request.export = Some(value()?.into()),
            "--alert" => request.alert = Some(value()?),
            "--stall" => {
                let text = value()?;
                let seconds = text.parse().ok().filter(|s: &f64| *s > 0.0 && s.is_finite());
                request.stall = seconds.ok_or_else(|| wrong(format!("--stall {text} is no number of seconds")))?;
            }
            "--port" => {
                let text = value()?;
                let port = text.parse().map_err(|_| wrong(format!("--port {text} is no port, 0 to 65535")))?;
                request.port = Some(port);
            }
            "--token" if inline.is_some() => {
                return Err(wrong("--token takes no value, which others could see; set RUSHLIGHT_UI_TOKEN".into()));
            }
            // The default, which used to be an option.
            "--token" => request.no_token = false,
            "--no-token" => request.no_token = true,
            other if other.starts_with('-') => {
                return Err(wrong(format!("{other} is no option{}", did_you_mean(other, USAGE))));
            }
            _ if request.directory.as_os_str().is_empty() => request.directory = word.into(),
            other => return Err(wrong(format!("one directory is shown; {other} is another"))),
        }
    }
    if request.directory.as_os_str().is_empty() {
        request.directory = if Path::new("runs").is_dir() { "runs".into() } else { ".".into() };
    }
    Ok(request)
}

/// Listens on the given port, or on the first free one from the default.
fn listen(request: &Request) -> Result<TcpListener, String> {
    let ports: Vec<u16> = request.port.map_or_else(|| (PORT..PORT + 40).collect(), |port| vec![port]);
    let mut why = String::new();
    for port in ports {
        let at = (request.host.as_str(), port);
        let addresses = at.to_socket_addrs().map_err(|e| format!("--host {}: {e}", request.host))?;
        match TcpListener::bind(addresses.collect::<Vec<_>>().as_slice()) {
            Ok(listener) => return Ok(listener),
            Err(e) => why = format!("cannot listen at {} port {port}: {e}", request.host),
        }
    }
    Err(why)
}

/// The required token, and whether it is new.
fn token(request: &Request, address: IpAddr) -> Result<Option<(String, bool)>, String> {
    let given = std::env::var("RUSHLIGHT_UI_TOKEN").ok().filter(|token| !token.is_empty());
    if request.no_token {
        return match address.is_loopback() {
            true if given.is_none() => Ok(None),
            true => Err("--no-token and RUSHLIGHT_UI_TOKEN contradict each other".into()),
            false => Err(format!("--no-token is for this machine only; at {address} browsers need a token")),
        };
    }
    match given {
        Some(token)
            if token.len() < SHORTEST_TOKEN
                || !token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') =>
        {
            Err(format!("RUSHLIGHT_UI_TOKEN must have {SHORTEST_TOKEN} letters, digits, - or _ at least"))
        }
        Some(token) => Ok(Some((token, false))),
        None => random_token().map(|token| Some((token, true))).map_err(|e| format!("no random numbers: {e}")),
    }
}

/// Writes the token to a private file of the user.
#[cfg(unix)]
fn keep_token(token: &str, port: u16) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt;
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or(std::io::ErrorKind::NotFound)?;
    let directory = home.join(".cache").join("rushlight");
    std::fs::create_dir_all(&directory)?;
    let path = directory.join(format!("ui-token-{port}"));
    // Create a new file: other processes could have an existing one open.
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    writeln!(file, "{token}")?;
    Ok(path)
}

#[cfg(not(unix))]
fn keep_token(_: &str, _: u16) -> std::io::Result<PathBuf> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// The start message: the address, the token, and how to connect from another machine.
fn announce(request: &Request, address: std::net::SocketAddr, token: Option<&(String, bool)>) -> String {
    let port = address.port();
    let host = match address.ip() {
        ip if ip.is_unspecified() => crate::hostname(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    // The page opens with the tab of its address.
    let tab = if is_model(&request.directory) { "#tab=models" } else { "" };
    let shown = token.is_some_and(|(_, made)| *made && std::io::stdout().is_terminal());
    let mut text = format!("rushlight ui: http://{host}:{port}/{}", if shown { "" } else { tab });
    if let Some((token, made)) = token {
        if *made && std::io::stdout().is_terminal() {
            text += &format!("?token={token}{tab}");
        } else if *made {
            text += &match keep_token(token, port) {
                Ok(path) => format!(" requires the token in {}", path.display()),
                Err(e) => format!(" requires a token that could not be saved ({e}); set RUSHLIGHT_UI_TOKEN"),
            };
        } else {
            text += " requires the token in RUSHLIGHT_UI_TOKEN";
        }
    }
    let what = if is_model(&request.directory) { "" } else { "the runs below " };
    text += &format!("\nshows {what}{}; Ctrl-C ends it", request.directory.display());
    if address.ip().is_loopback() && std::env::var_os("SSH_CONNECTION").is_some() {
        let name = crate::hostname();
        text +=
            &format!("\nfrom your own machine: ssh -L {port}:localhost:{port} {name}, then http://localhost:{port}/");
    }
    text
}

/// Runs `rushlight ui` until it is ended. Returns the exit code.
pub fn ui(arguments: &[OsString]) -> u8 {
    let request = match read(arguments) {
        Ok(request) => request,
        Err((text, 0)) => {
            println!("{text}");
            return 0;
        }
        Err((text, code)) => {
            eprintln!("{text}");
            return code;
        }
    };
    match serve(&request) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("rushlight ui: {e}");
            1
        }
    }
}

/// Whether a path is the file of an exported model.
fn is_model(path: &Path) -> bool {
    let ending = path.extension().and_then(|e| e.to_str());
    path.is_file() && matches!(ending, Some("rlm" | "onnx" | "pt2" | "pt" | "ts"))
}

fn serve(request: &Request) -> Result<(), String> {
    if !request.directory.is_dir() && !is_model(&request.directory) {
        return Err(format!("{} is neither a directory nor an exported model", request.directory.display()));
    }
    if let Some(path) = &request.export {
        let store = Store::new(request.directory.clone());
        store.read_now();
        if store.lock().runs.is_empty() {
            return Err(format!("there is no run below {}", request.directory.display()));
        }
        let text = html(&store);
        std::fs::write(path, &text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        println!("{}: {} runs, {} KiB", path.display(), store.lock().runs.len(), text.len() >> 10);
        return Ok(());
    }
    let listener = listen(request)?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let token = token(request, address.ip())?;
    let store = Store::new(request.directory.clone());
    if let Some(command) = &request.alert {
        store.set_alerts(Alerts::new(command.clone(), request.stall));
    }
    store.watch().map_err(|e| format!("cannot start a thread: {e}"))?;
    let text = announce(request, address, token.as_ref());
    let access = Access::new(token.map(|(token, _)| token), address.port());
    // A reader such as `head` may have exited.
    let _ = writeln!(std::io::stdout(), "{text}");
    Server::new(store, access).run(&listener);
    Ok(())
}
