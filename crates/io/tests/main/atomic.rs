use crate::Folder;
use rushlight_io::atomic::AtomicFile;
use std::fs;
use std::io::Write;

#[test]
fn the_old_file_stays_until_the_new_one_is_whole() {
    let folder = Folder::new("atomic");
    let path = folder.path("file");
    fs::write(&path, "old").unwrap();
    let mut file = AtomicFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(folder.names(), ["file"]);

    for durable in [false, true] {
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        if durable {
            file.commit().unwrap()
        } else {
            file.replace().unwrap()
        }
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(folder.names(), ["file"]);
    }
}

#[test]
fn large_files_are_whole_too() {
    let folder = Folder::new("atomic-large");
    let bytes: Vec<u8> = (0..40 << 20).map(|i: u32| (i >> 10) as u8).collect();
    // Also replacing another large file, which is freed in the background.
    for _ in 0..2 {
        let mut file = AtomicFile::create(folder.path("file")).unwrap();
        file.write_all(&bytes).unwrap();
        file.commit().unwrap();
        assert!(fs::read(folder.path("file")).unwrap() == bytes);
        assert_eq!(folder.names(), ["file"]);
    }
}

#[test]
#[cfg(unix)]
fn links_stay_links() {
    let folder = Folder::new("atomic-link");
    fs::create_dir(folder.path("real")).unwrap();
    fs::write(folder.path("real/file"), "old").unwrap();
    std::os::unix::fs::symlink("real/file", folder.path("link")).unwrap();
    let mut file = AtomicFile::create(folder.path("link")).unwrap();
    file.write_all(b"new").unwrap();
    file.commit().unwrap();
    assert_eq!(fs::read(folder.path("real/file")).unwrap(), b"new");
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let folder = Folder::new("atomic-errors");
    for path in [folder.path("missing/file"), folder.path("")] {
        let error = AtomicFile::create(&path).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("rushlight-io"), "{error}");
    }
}

#[test]
#[cfg(unix)]
fn permissions_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("atomic-mode");
    let path = folder.path("file");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    for kept in [0o600, 0o640, 0o666, 0o444] {
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        // Also before it is in place.
        for entry in fs::read_dir(folder.path("")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, kept);
        }
        file.write_all(b"new").unwrap();
        file.replace().unwrap();
        assert_eq!((mode(), fs::read(&path).unwrap()), (kept, b"new".to_vec()), "{kept:o}");
        fs::remove_file(&path).unwrap();
    }
    // A new file has the default permissions.
    fs::write(folder.path("plain"), "").unwrap();
    AtomicFile::create(&path).unwrap().replace().unwrap();
    assert_eq!(mode(), fs::metadata(folder.path("plain")).unwrap().permissions().mode() & 0o777);
}

/// Not a test: the process that the next one kills in the middle of a save.
#[test]
fn child_save() {
    let Ok(path) = std::env::var("RUSHLIGHT_TEST_SAVE") else { return };
    let mut file = AtomicFile::create(path).unwrap();
    file.write_all(b"half").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
#[cfg(target_os = "linux")]
fn the_next_save_removes_what_a_killed_one_left() {
    use std::process::{Command, Stdio};
    let folder = Folder::new("atomic-killed");
    let path = folder.path("file");
    // This process has written here before.
    AtomicFile::create(&path).unwrap().replace().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "atomic::child_save"])
        .env("RUSHLIGHT_TEST_SAVE", &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    while folder.names().len() < 2 || fs::metadata(folder.path(&folder.names()[0])).is_ok_and(|m| m.len() < 4) {
        assert!(start.elapsed().as_secs() < 50 && child.try_wait().unwrap().is_none(), "the child does not write");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // While it lives, no other process touches its file.
    AtomicFile::create(&path).unwrap().replace().unwrap();
    rushlight_io::atomic::remove_leftovers(folder.path(""));
    assert_eq!(folder.names().len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(folder.names().len(), 2);
    AtomicFile::create(&path).unwrap().replace().unwrap();
    assert_eq!(folder.names(), ["file"]);
}
