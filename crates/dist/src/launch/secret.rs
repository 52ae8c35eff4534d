//! The secret with which the processes of a job authenticate each other.

use super::{Launch, Rendezvous};
use crate::store::auth::hmac;
use rushlight_core::{Error, Result};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The variable with which a launcher or a user passes a secret to all processes of a job.
pub const SECRET_VARIABLE: &str = "RUSHLIGHT_JOB_SECRET";

/// 32 bytes that all processes of a job have and no others. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A secret from text that the processes share.
    pub fn new(text: &str) -> Self {
        Self(hmac(b"rushlight job secret", &[text.as_bytes()]))
    }

    /// A new random secret.
    pub fn random() -> Result<Self> {
        Ok(Self(random_bytes()?))
    }
}

/// 32 bytes from the kernel's generator.
pub(crate) fn random_bytes() -> Result<[u8; 32]> {
    let mut bytes = [0u8; 32];
    fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).map_err(|e| {
        Error::io(format!(
            "launch: /dev/urandom cannot be read ({e}); it is needed to authenticate the job's processes"
        ))
    })?;
    Ok(bytes)
}

/// The secret of a job, and its source: RUSHLIGHT_JOB_SECRET, the launcher's own, or derived from the job's name and a
/// key in the user's home directory that only the user can read.
///
/// The key is created on first use. Nodes that do not share the home directory need RUSHLIGHT_JOB_SECRET.
pub fn job_secret(launch: &Launch, meeting: &Rendezvous) -> Result<(Secret, String)> {
    if let Ok(text) = std::env::var(SECRET_VARIABLE)
        && !text.is_empty()
    {
        return Ok((Secret::new(&text), SECRET_VARIABLE.into()));
    }
    if let Some(text) = &launch.launcher_secret {
        return Ok((Secret::new(&format!("{text} {}", meeting.job)), format!("given by {}", launch.launcher)));
    }
    let path = key_path()?;
    let key = user_key(&path)?;
    let mut secret = Secret([0; 32]);
    secret.0 = hmac(&key, &[b"job ", meeting.job.as_bytes()]);
    Ok((secret, format!("derived from the key {}", path.display())))
}

fn key_path() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).ok_or_else(|| {
        Error::io(format!("launch: HOME is not set, so there is no place for the user's key; set {SECRET_VARIABLE}"))
    })?;
    Ok(Path::new(&home).join(".rushlight").join("job-key"))
}

/// The user's key, created if missing. A key that others can read or replace is refused.
fn user_key(path: &Path) -> Result<[u8; 32]> {
    let fail =
        |what: String| Error::io(format!("launch: {what}; set {SECRET_VARIABLE} to a random text of the job's own"));
    let in_use = |e: std::io::Error| fail(format!("the key {} cannot be used ({e})", path.display()));
    if !path.exists() {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(in_use)?;
        }
        // Written to a temporary file and linked into place: if several processes create it at once, one wins, and
        // none sees a partial key.
        let own = path.with_extension(format!(
            "{}.{}",
            std::process::id(),
            u64::from_le_bytes(random_bytes()?[..8].try_into().unwrap_or_default())
        ));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own).map_err(in_use)?;
        file.write_all(&random_bytes()?).and_then(|()| file.sync_all()).map_err(in_use)?;
        let linked = fs::hard_link(&own, path);
        fs::remove_file(&own).map_err(in_use)?;
        match linked {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(in_use(e)),
            _ => {}
        }
    }
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path).map_err(in_use)?;
    let meta = file.metadata().map_err(in_use)?;
    // SAFETY: `geteuid` has no preconditions.
    let user = unsafe { libc::geteuid() };
    if !meta.is_file() || meta.uid() != user || meta.mode() & 0o077 != 0 {
        return Err(fail(format!("the key {} is not a file that only this user can read (mode 0600)", path.display())));
    }
    let mut key = [0u8; 32];
    file.read_exact(&mut key).map_err(in_use)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_key_is_made_once_and_must_be_private() {
        let dir = std::env::temp_dir().join(format!("rushlight-key-{}", std::process::id()));
        let path = dir.join("sub").join("job-key");
        let first = user_key(&path).unwrap();
        assert_eq!(first, user_key(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(user_key(&path).unwrap_err().to_string().contains("0600"));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn secrets_are_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("x")), "Secret(…)");
    }
}
