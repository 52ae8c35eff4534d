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
    // Also in the place of another large one, which is freed aside.
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
