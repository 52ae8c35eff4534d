//! The environment of a process as data, so that detection is a pure function.

use rushlight_core::{Error, Result};
use std::collections::BTreeMap;

/// Environment variables, host name, and the few files that launchers leave behind.
///
/// [`Environment::current`] reads the process's own; [`Environment::recorded`] is a recording, which accesses nothing
/// of this machine.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    vars: BTreeMap<String, String>,
    /// Contents of files by path; `None` reads the file system.
    files: Option<BTreeMap<String, String>>,
    hostname: String,
}

impl Environment {
    /// The environment of this process. Variables that are not UTF-8 are left out.
    pub fn current() -> Self {
        let vars =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
        Self { vars, files: None, hostname: hostname() }
    }

    /// An environment from lines of `NAME=value`, as `env` prints them. Other lines are ignored.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_dist as dist; }
    /// use rushlight::dist::launch::{Environment, Launcher, detect_from};
    /// let env = Environment::recorded("PMI_RANK=1\nPMI_SIZE=4\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=4");
    /// let launch = detect_from(&env)?;
    /// assert_eq!((launch.launcher, launch.rank, launch.world_size), (Launcher::Hydra, 1, 4));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn recorded(lines: &str) -> Self {
        let vars = lines
            .lines()
            .filter_map(|line| line.trim().split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        Self { vars, files: Some(BTreeMap::new()), hostname: "node0".into() }
    }

    /// Adds a file to a recorded environment.
    pub fn with_file(mut self, path: &str, contents: &str) -> Self {
        self.files.get_or_insert_default().insert(path.to_owned(), contents.to_owned());
        self
    }

    /// Sets the host name of a recorded environment.
    pub fn with_hostname(mut self, hostname: &str) -> Self {
        self.hostname = hostname.to_owned();
        self
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// A variable as a number; an error that names it if it is set to something else.
    pub fn number(&self, name: &str) -> Result<Option<usize>> {
        self.get(name)
            .map(|value| {
                value.trim().parse().map_err(|_| {
                    Error::value(format!(
                        "launch: {name}={value} should be a number that is not negative; unset or correct it"
                    ))
                })
            })
            .transpose()
    }

    /// This host's name, by `gethostname`.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Whether this describes the running process rather than a recording.
    pub fn is_current(&self) -> bool {
        self.files.is_none()
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> Option<String> {
        match &self.files {
            Some(files) => files.get(path).cloned(),
            None => std::fs::read_to_string(path).ok(),
        }
    }
}

fn hostname() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is writable and one byte longer than the length given, so the name ends with a zero.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let end = name.iter().position(|&b| b == 0).unwrap_or(0);
    if failed { String::new() } else { String::from_utf8_lossy(&name[..end]).into_owned() }
}
