//! Checksums, archives, and fetching without a network.

use crate::TempDir;
use flate2::{Compression, write::GzEncoder};
use rushlight_data::download::{Checksum, Remote, UnpackLimits, unpack_tar_gz};
use std::io::Write;

/// A tar header and contents, padded to blocks.
fn entry(name: &str, kind: u8, contents: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
    header[156] = kind;
    header[257..263].copy_from_slice(b"ustar\0");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut out = header.to_vec();
    out.extend(contents);
    out.resize(out.len().div_ceil(512) * 512, 0);
    out
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    for entry in entries {
        out.write_all(entry).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
    out.finish().unwrap()
}

#[test]
fn archives_are_unpacked() {
    let folder = TempDir::new();
    let long = vec![5u8; 1000];
    let bytes = archive(&[
        entry("top/", b'5', &[]),
        entry("./top/a.bin", b'0', b"hello"),
        entry("x", b'x', b"20 mtime=1234567890\n"),
        entry("top/deep/b.bin", 0, &long),
    ]);
    let path = folder.write("a.tar.gz", &bytes);
    let out = folder.path().join("out");
    let files = unpack_tar_gz(&path, &out, UnpackLimits::default()).unwrap();
    assert_eq!(files, [out.join("top/a.bin"), out.join("top/deep/b.bin")]);
    assert_eq!(std::fs::read(out.join("top/deep/b.bin")).unwrap(), long);
}

#[test]
fn archives_that_are_refused() {
    let folder = TempDir::new();
    let limits = UnpackLimits { bytes: 2000, entries: 3 };
    let refused = |bytes: &[u8]| {
        let path = folder.write("a.tar.gz", bytes);
        unpack_tar_gz(&path, &folder.path().join("inner/out"), limits).unwrap_err().to_string()
    };
    for name in ["../evil", "/etc/evil", "a/../../evil", ".."] {
        assert!(refused(&archive(&[entry(name, b'0', b"x")])).contains("outside its own folder"), "{name}");
    }
    assert!(!folder.path().join("evil").exists() && !folder.path().join("inner/evil").exists());
    for kind in [b'1', b'2', b'3', b'L'] {
        assert!(refused(&archive(&[entry("link", kind, b"")])).contains("only plain files"));
    }
    assert!(refused(&archive(&[entry("x", b'x', b"20 path=/etc/passwd\n")])).contains("extended names"));
    assert!(refused(&archive(&[entry("big", b'0', &[0; 2001])])).contains("more than"));
    let many: Vec<_> = (0..4).map(|i| entry(&i.to_string(), b'0', b"")).collect();
    assert!(refused(&archive(&many)).contains("more than"));
    assert!(refused(b"no gzip").contains("damaged"));
    assert!(refused(&archive(&[vec![1; 512]])).contains("no tar archive"));
    let whole = archive(&[entry("a", b'0', &[7; 900])]);
    assert!(!refused(&whole[..whole.len() / 2]).is_empty());
    // A header that claims more than follows.
    let mut claims = entry("a", b'0', &[7; 1500]);
    claims.truncate(1024);
    let mut cut = GzEncoder::new(Vec::new(), Compression::fast());
    cut.write_all(&claims).unwrap();
    assert!(refused(&cut.finish().unwrap()).contains("cut off"));
}

#[test]
fn checksums() {
    let folder = TempDir::new();
    let path = folder.write("abc", b"abc");
    // From the algorithms' published test vectors.
    Checksum::Md5("900150983cd24fb0d6963f7d28e17f72".into()).verify(&path).unwrap();
    let sha = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
    Checksum::Sha256(sha.into()).verify(&path).unwrap();
    let error = Checksum::Md5("0".repeat(32)).verify(&path).unwrap_err().to_string();
    assert!(error.contains("900150983cd24fb0d6963f7d28e17f72"), "{error}");
    assert!(Checksum::Md5(String::new()).verify(&folder.path().join("absent")).is_err());
}

#[test]
fn what_is_there_is_not_fetched() {
    let folder = TempDir::new();
    let remote = |name: &str| {
        Remote::new(name, ["ftp://nowhere.invalid/abc"], Checksum::Md5("900150983cd24fb0d6963f7d28e17f72".into()))
    };
    let path = folder.write("abc", b"abc");
    assert_eq!(remote("abc").fetch(folder.path()).unwrap(), path);
    let error = remote("absent").fetch(folder.path()).unwrap_err().to_string();
    assert!(error.contains("ftp://nowhere.invalid/abc") && error.contains("put it at"), "{error}");
    folder.write("abc", b"abd");
    assert!(remote("abc").fetch(folder.path()).unwrap_err().to_string().contains("damaged"));
    for name in ["../abc", "a/b", "", ".."] {
        assert!(remote(name).fetch(folder.path()).is_err(), "{name}");
    }
}
