//! MIOpen's cache directory: the user's, on the node's local disk.
//!
//! MIOpen's default is the home directory. On clusters that is a network file system, where its database files fail
//! under the locks of many ranks.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Environment variables that MIOpen reads: the directories of its databases and of its compiled kernels.
const VARIABLES: [&str; 2] = ["MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"];

/// Sets MIOpen's variables, unless the user has set them. Called before MIOpen is opened.
pub fn place() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let missing = VARIABLES.iter().filter(|v| std::env::var_os(v).is_none_or(|v| v.is_empty()));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return;
        }
        if let Some(directory) = own_directory(&std::env::temp_dir()) {
            for variable in missing {
                // SAFETY: once in the life of the process, while the device starts; Rust's own reads are locked against
                // it.
                unsafe { std::env::set_var(variable, OsStr::new(&directory)) };
            }
        }
    });
}

/// Creates a directory in `base` that belongs to this user and that nobody else can write to; `None` if that fails.
fn own_directory(base: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = std::fs::metadata("/proc/self").ok()?.uid();
    let directory = base.join(format!("rushlight-miopen-{user}"));
    // Fails if the directory exists; the next lines check its owner and mode.
    _ = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    let found = std::fs::symlink_metadata(&directory).ok()?;
    (found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0).then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::own_directory;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        let base = std::env::temp_dir().join(format!("rushlight-miopen-test-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let directory = own_directory(&base).unwrap();
        assert_eq!(own_directory(&base).as_deref(), Some(directory.as_path()));
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(own_directory(&base), None);
        std::fs::remove_dir(&directory).unwrap();
        std::os::unix::fs::symlink("/tmp", &directory).unwrap();
        assert_eq!(own_directory(&base), None);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
