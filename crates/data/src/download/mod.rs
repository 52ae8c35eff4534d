//! Downloads, checks and unpacks public datasets.
//!
//! The system's `curl` or `wget` download files, since they know the machine's proxies and certificates. A file is
//! checked before it is renamed to its final name.

mod archive;
mod checksum;

pub use archive::{UnpackLimits, unpack_tar_gz};
pub use checksum::Checksum;

use rushlight_core::{Error, ErrorKind, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file on the network: its name, URLs, size and checksum.
#[derive(Clone, Debug)]
pub struct Remote {
    name: String,
    urls: Vec<String>,
    checksum: Checksum,
}

impl Remote {
    /// A file that any of the addresses gives.
    pub fn new(name: impl Into<String>, urls: impl IntoIterator<Item = impl Into<String>>, checksum: Checksum) -> Self {
        Self { name: name.into(), urls: urls.into_iter().map(Into::into).collect(), checksum }
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a folder contains the file; an error if a different file has its name.
    pub fn find(&self, folder: &Path) -> Result<Option<PathBuf>> {
        let path = folder.join(&self.name);
        if !path.is_file() {
            return Ok(None);
        }
        self.checksum.verify(&path)?;
        Ok(Some(path))
    }

    /// The file in a folder, downloaded if missing. An interrupted download resumes. Processes
    /// that need the same file take turns, so that one downloads it for all.
    pub fn fetch(&self, folder: &Path) -> Result<PathBuf> {
        let plain = Path::new(&self.name).components().count() == 1 && !self.name.starts_with('.');
        if !plain {
            return Err(Error::value(format!("download: '{}' is not the plain name of a file", self.name)));
        }
        fs::create_dir_all(folder).map_err(|e| failed("create", folder, &e))?;
        let lock_path = folder.join(format!(".{}.lock", self.name));
        let lock = File::create(&lock_path).map_err(|e| failed("create", &lock_path, &e))?;
        // Some network file systems have no locks; the checksum still detects a damaged file.
        let _ = lock.lock();
        if let Some(path) = self.find(folder)? {
            return Ok(path);
        }
        let (path, part) = (folder.join(&self.name), folder.join(format!("{}.part", self.name)));
        let mut reasons = Vec::new();
        for url in &self.urls {
            match self.fetch_from(url, &part) {
                Ok(()) => {
                    fs::rename(&part, &path).map_err(|e| failed("rename", &part, &e))?;
                    return Ok(path);
                }
                Err(e) => reasons.push(format!("{url}: {e}")),
            }
        }
        Err(Error::io(format!(
            "download: cannot fetch {} ({}). On a machine with a network, fetch {} and put it at {} ({})",
            self.name,
            reasons.join("; "),
            self.urls.first().map_or("it", |u| u),
            path.display(),
            self.checksum
        )))
    }

    /// Downloads the rest of a partial file and checks the whole. An interrupted part is kept for the next attempt; a
    /// wrong one is removed.
    fn fetch_from(&self, url: &str, part: &Path) -> Result<()> {
        let begun = part.metadata().is_ok_and(|m| m.len() > 0);
        if begun && self.checksum.verify(part).is_ok() {
            return Ok(());
        }
        let attempt = || run_tools(url, part).and_then(|()| self.checksum.verify(part));
        // The server cannot continue from the middle, or the beginning was of something else.
        let spoilt = |e: &Error| matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::Value);
        let mut fetched = attempt();
        if begun && fetched.as_ref().is_err_and(spoilt) {
            fs::remove_file(part).map_err(|e| failed("remove", part, &e))?;
            fetched = attempt();
        }
        fetched.inspect_err(|e| {
            if spoilt(e) {
                // It would only spoil the next fetch; the error to report is the one there is.
                let _ = fs::remove_file(part);
            }
        })
    }
}

/// The error of a file operation.
pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("cannot {what} {}: {error}", path.display()))
}

/// How curl and wget end when the server answers but does not give the file, or not from the middle on.
const REFUSED: [(&str, &[i32]); 2] = [("curl", &[22, 33, 36]), ("wget", &[8])];

/// Fetches with the first tool that is installed. A refusal by the server is of kind [`ErrorKind::Unsupported`].
fn run_tools(url: &str, part: &Path) -> Result<()> {
    if !(url.starts_with("https://") || url.starts_with("http://")) {
        return Err(Error::io("only http and https addresses are fetched"));
    }
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--location", "--silent", "--show-error", "--proto", "=https,http"])
        .args(["--connect-timeout", "20", "--speed-limit", "1000", "--speed-time", "60", "--continue-at", "-"])
        .arg("--output")
        .arg(part)
        .arg("--")
        .arg(url);
    let mut wget = Command::new("wget");
    wget.args(["--quiet", "--continue", "--tries", "2", "--timeout", "60"])
        .arg("--output-document")
        .arg(part)
        .arg("--")
        .arg(url);
    for tool in [&mut curl, &mut wget] {
        match tool.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let (name, text) = (tool.get_program().to_string_lossy(), String::from_utf8_lossy(&output.stderr));
                let refused = |(tool, codes): &(&str, &[i32])| {
                    name == *tool && output.status.code().is_some_and(|c| codes.contains(&c))
                };
                let kind = if REFUSED.iter().any(refused) { ErrorKind::Unsupported } else { ErrorKind::Io };
                return Err(Error::new(kind, format!("{name} ended with {}: {}", output.status, text.trim())));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(format!("cannot run {}: {e}", tool.get_program().to_string_lossy()))),
        }
    }
    Err(Error::io("neither curl nor wget is installed"))
}
