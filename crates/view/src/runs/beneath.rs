//! Opening files below a directory, and nowhere else.
//!
//! A path that the scan has found may be replaced by a link before it is opened. Each component is therefore opened in
//! the one before it, without following links: what is opened lies below the directory, whatever happens meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A directory below which files are opened.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// A directory, by its path without links.
    pub fn new(path: &Path) -> Self {
        Self(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }

    /// Opens a regular file. Links are resolved first, and their target must lie below the directory.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let target = path.canonicalize()?;
        let below = target.strip_prefix(&self.0).map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        let file = open_below(&self.0, below)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }
}

#[cfg(target_os = "linux")]
fn open_below(root: &Path, below: &Path) -> io::Result<File> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    let mut directory: OwnedFd = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(root)?.into();
    let mut parts = below.components().peekable();
    while let Some(part) = parts.next() {
        let std::path::Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        let name = std::ffi::CString::new(name.as_bytes())?;
        let is_last = parts.peek().is_none();
        // A pipe in place of the file must not block.
        let kind = if is_last { libc::O_NONBLOCK } else { libc::O_DIRECTORY | libc::O_PATH };
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | kind;
        // SAFETY: the directory is open and the name ends with a zero; a new descriptor or -1 comes back.
        let fd = unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let opened = unsafe { OwnedFd::from_raw_fd(fd) };
        if is_last {
            return Ok(opened.into());
        }
        directory = opened;
    }
    Err(io::ErrorKind::InvalidInput.into())
}

#[cfg(not(target_os = "linux"))]
fn open_below(root: &Path, below: &Path) -> io::Result<File> {
    File::open(root.join(below))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_is_opened() {
        let folder = std::env::temp_dir().join(format!("rushlight-beneath-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("runs/a/deep")).unwrap();
        std::fs::write(folder.join("secret"), "secret").unwrap();
        std::fs::write(folder.join("runs/a/deep/log"), "log").unwrap();
        symlink(folder.join("runs/a/deep/log"), folder.join("runs/a/inside")).unwrap();
        symlink(folder.join("secret"), folder.join("runs/a/outside")).unwrap();
        symlink("../..", folder.join("runs/a/up")).unwrap();
        let root = Root::new(&folder.join("runs"));
        let read = |path: &str| {
            let mut text = String::new();
            root.open(&folder.join(path)).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        assert_eq!(read("runs/a/deep/log").unwrap(), "log");
        assert_eq!(read("runs/a/inside").unwrap(), "log");
        for path in ["runs/a/outside", "runs/a/up/secret", "secret", "runs/../secret", "runs/a", "runs/a/missing"] {
            assert!(read(path).is_err(), "{path}");
        }
        // Swapped in after the links were resolved: a link in place of a folder, or of the file.
        for (name, target) in [("swap", folder.clone()), ("file", folder.join("secret"))] {
            symlink(target, folder.join("runs").join(name)).unwrap();
        }
        assert!(open_below(&folder.join("runs"), Path::new("swap/secret")).is_err());
        assert!(open_below(&folder.join("runs"), Path::new("file")).is_err());
        assert!(open_below(&folder.join("runs"), Path::new("../secret")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
