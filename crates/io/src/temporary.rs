//! Temporary files next to their destinations, and removal of those that killed writers leave.
//!
//! The file of a writer is `.NAME.KERNEL.SLOT.tmp`: `KERNEL` names the running kernel (its boot id), `SLOT` counts
//! writers of one name. A living writer holds an advisory lock on its file. So a file is dead when
//! - this kernel wrote it and nobody holds its lock: processes of one kernel see each other's locks, whatever their
//!   containers or PID namespaces, and on any file system that has locks at all;
//! - or another kernel wrote it, nobody is seen to hold its lock, and it has not been written to for a day. Locks may
//!   not reach other nodes of a cluster, and a writer there that is alive continues writing.
//!
//! A writer takes the first slot that is free or dead, so the next save of a name removes its leftovers of this kernel.
//! Files of other kernels are looked for once in a process and folder.

use rushlight_core::sync::lock;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// For how long a writer of another kernel may write nothing.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

const EXTENSION: &str = "tmp";

/// The kernel's identity: 16 hexadecimal digits, or `None` where it has none that we know of.
fn kernel() -> Option<&'static str> {
    static KERNEL: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        (digits.len() == 16).then_some(digits)
    };
    KERNEL.get_or_init(read).as_deref()
}

fn name(destination: &OsStr, kernel: &str, slot: u32) -> OsString {
    let mut name = OsString::from(".");
    name.push(destination);
    name.push(format!(".{kernel}.{slot}.{EXTENSION}"));
    name
}

/// The kernel part of a temporary file's name; `None` if it is no such name.
fn kernel_of(name: &OsStr) -> Option<&str> {
    let mut parts = name.to_str()?.strip_prefix('.')?.rsplit('.');
    let (extension, slot, kernel) = (parts.next()?, parts.next()?, parts.next()?);
    let is_kernel = kernel == "unknown" || kernel.len() == 16 && kernel.bytes().all(|b| b.is_ascii_hexdigit());
    (extension == EXTENSION && slot.parse::<u32>().is_ok() && is_kernel && parts.next().is_some()).then_some(kernel)
}

/// A new temporary file for a destination, locked. One that will replace a file is for its owner's eyes only until
/// [`adopt`] has given it that file's permissions.
pub(crate) fn create(destination: &Path, replaces: bool) -> io::Result<(File, PathBuf)> {
    let file_name = destination.file_name().ok_or_else(|| io::Error::other("the path does not end in a file name"))?;
    remove_foreign(folder(destination));
    let mut slot = 0;
    loop {
        let path = destination.with_file_name(name(file_name, kernel().unwrap_or("unknown"), slot));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if replaces {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let _ = replaces;
        match options.open(&path) {
            Ok(file) => match claim(&file) {
                Claim::Held => return Ok((file, path)),
                // Somebody took it for a dead one just before it was locked.
                Claim::Gone => continue,
                Claim::Contested => slot += 1,
            },
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !remove_if_dead(&path) {
                    slot += 1;
                }
            }
            Err(e) => return Err(e),
        }
    }
}

enum Claim {
    Held,
    Gone,
    Contested,
}

/// Locks a file of one's own. Where there are no locks, the file is held without: others go by its age.
fn claim(file: &File) -> Claim {
    if !cfg!(unix) {
        return Claim::Held;
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Claim::Contested,
        _ if file.metadata().is_ok_and(|meta| is_unlinked(&meta)) => Claim::Gone,
        _ => Claim::Held,
    }
}

/// Removes a file if its writer is dead. True if the name is free now.
fn remove_if_dead(path: &Path) -> bool {
    // Locks of network file systems need a file that may be written.
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(e) => return e.kind() == io::ErrorKind::NotFound,
    };
    let locked = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => return false,
        Err(TryLockError::Error(_)) => false,
    };
    let Ok(meta) = file.metadata() else { return false };
    let silent = meta.modified().ok().and_then(|time| time.elapsed().ok()).is_some_and(|silence| silence > SILENCE);
    let ours = kernel().is_some() && path.file_name().and_then(kernel_of) == kernel();
    // Under the lock a file keeps its name: it is removed by holders of the lock only. One that has lost it is another
    // by now.
    let is_same = fs::metadata(path).is_ok_and(|now| is_same_file(&meta, &now));
    is_same && (locked && ours || silent) && fs::remove_file(path).is_ok()
}

/// Removes the dead temporary files of a folder. Errors do not matter: nothing reads these files.
pub(crate) fn remove_dead(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| kernel_of(&entry.file_name()).is_some()) {
        remove_if_dead(&entry.path());
    }
}

/// [`remove_dead`] when this process first writes to the folder, as far as it remembers.
fn remove_foreign(folder: &Path) {
    static SEEN: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
    let Ok(whole) = fs::canonicalize(folder) else { return };
    let is_new = {
        let mut seen = lock(&SEEN);
        let seen = seen.get_or_insert_default();
        if seen.len() == 256 {
            seen.clear();
        }
        seen.insert(whole)
    };
    if is_new {
        remove_dead(folder);
    }
}

pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Copies the permissions of the file to be replaced, and its owner and group if allowed. If the
/// group cannot be kept, the group's permissions are reduced to everybody's.
#[cfg(unix)]
pub(crate) fn adopt(file: &File, replaced: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let own = file.metadata()?;
    let mut mode = replaced.mode() & 0o777;
    if (own.uid(), own.gid()) != (replaced.uid(), replaced.gid())
        && fchown(file, Some(replaced.uid()), Some(replaced.gid())).is_err()
        && fchown(file, None, Some(replaced.gid())).is_err()
    {
        mode &= !0o070 | (mode & 0o007) << 3;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Other systems' files take the permissions of their folder.
#[cfg(not(unix))]
pub(crate) fn adopt(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_unlinked(meta: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(meta) == 0
}

#[cfg(unix)]
fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_unlinked(_: &Metadata) -> bool {
    false
}

/// An open file keeps its name here.
#[cfg(not(unix))]
fn is_same_file(_: &Metadata, _: &Metadata) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::SystemTime;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rushlight-temporary-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }

        /// The leftover of a writer that was killed on a kernel `seconds` ago.
        fn leave(&self, kernel: &str, seconds: u64) -> PathBuf {
            let path = self.0.join(name(OsStr::new("model.pt"), kernel, 0));
            let file = File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ELSEWHERE: &str = "0123456789abcdef";

    #[test]
    fn names_are_told_from_others() {
        let ours = name(OsStr::new("a.b.pt"), ELSEWHERE, 3);
        assert_eq!(ours, ".a.b.pt.0123456789abcdef.3.tmp");
        assert_eq!(kernel_of(&ours), Some(ELSEWHERE));
        for other in [
            "a.pt.0123456789abcdef.0.tmp",
            ".a.pt.12.0.tmp",
            ".0123456789abcdef.0.tmp",
            ".a.0123456789abcdef.x.tmp",
            ".a.tmp",
        ] {
            assert_eq!(kernel_of(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_dead_file_of_this_kernel_makes_room_and_a_living_one_does_not() {
        let folder = Folder::new("slots");
        let destination = folder.0.join("model.pt");
        let (living, first) = create(&destination, false).unwrap();
        let (_other, second) = create(&destination, false).unwrap();
        assert_ne!(first, second);
        remove_dead(&folder.0);
        assert_eq!(folder.names(), 2);
        // Killed: the system closes the file, and the lock is gone.
        drop(living);
        let (_again, third) = create(&destination, false).unwrap();
        assert_eq!((third, folder.names()), (first, 2));
    }

    #[test]
    fn a_file_of_another_kernel_is_left_for_a_day() {
        let folder = Folder::new("foreign");
        let destination = folder.0.join("model.pt");
        let young = folder.leave(ELSEWHERE, 3600);
        let old = folder.leave("fedcba9876543210", 25 * 3600);
        let (_file, own) = create(&destination, false).unwrap();
        assert!(young.exists() && !old.exists() && own.exists());
        // An old one whose lock is seen to be held has a writer.
        let old = folder.leave("fedcba9876543210", 25 * 3600);
        let writer = File::options().write(true).open(&old).unwrap();
        writer.lock().unwrap();
        remove_dead(&folder.0);
        assert!(old.exists());
        drop(writer);
        remove_dead(&folder.0);
        assert!(!old.exists() && young.exists());
    }

    /// Many threads write, die and clean at once: nobody loses a file that it holds.
    #[test]
    fn writers_and_cleaners_do_not_meet() {
        let folder = Folder::new("race");
        let destination = folder.0.join("model.pt");
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (destination, folder) = (&destination, &folder.0);
                scope.spawn(move || {
                    for round in 0..100 {
                        if worker == 0 {
                            remove_dead(folder);
                            continue;
                        }
                        let (file, path) = create(destination, false).unwrap();
                        let there = fs::metadata(&path).unwrap();
                        assert!(is_same_file(&there, &file.metadata().unwrap()));
                        if round % 2 == 0 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                });
            }
        });
        remove_dead(&folder.0);
        assert_eq!(folder.names(), 0);
    }
}
