//! Files that another program shortens while tensors of them are in use.

use crate::Folder;
use rushlight_core::ErrorKind;
use rushlight_io::safetensors::SafeTensors;
use rushlight_io::{LoadOptions, load, save};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{StateDict, Value};
use std::fs::OpenOptions;
use std::path::Path;

fn shorten(path: &Path) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(16).unwrap();
}

/// Large enough for several pages: a mapped page past the end of its file kills the process when it is read.
fn values() -> Tensor {
    Tensor::arange(0, 10_000, 1).unwrap()
}

#[test]
fn loaded_tensors_keep_their_values() {
    let folder = Folder::new("shortened");
    let state = Value::from(&StateDict::from_iter([("a".to_string(), values())]));
    for name in ["a.safetensors", "a.pt", "a.npz", "a.npy"] {
        let path = folder.path(name);
        save(&if name == "a.npy" { values().into() } else { state.clone() }, &path).unwrap();
        let loaded = load(&path).unwrap();
        shorten(&path);
        let a = if name == "a.npy" {
            loaded.as_tensor().unwrap().clone()
        } else {
            loaded.to_state_dict().unwrap()["a"].clone()
        };
        assert_eq!(a.to_vec::<i64>().unwrap(), values().to_vec::<i64>().unwrap(), "{name}");
    }
}

#[test]
fn tensors_read_on_demand_are_errors() {
    let folder = Folder::new("shortened-open");
    let path = folder.path("a.safetensors");
    let state = StateDict::from_iter([("a".to_string(), values()), ("b".to_string(), values())]);
    rushlight_io::safetensors::save(&state, &path).unwrap();
    let file = SafeTensors::open(&path).unwrap();
    let a = file.tensor("a").unwrap();
    shorten(&path);
    assert!(file.tensor("a").unwrap().shares_storage(&a));
    assert_eq!(a.to_vec::<i64>().unwrap(), values().to_vec::<i64>().unwrap());
    let error = file.tensor("b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("tensor 'b'") && error.to_string().contains("shortened"), "{error}");
}

#[test]
fn mapped_files_give_the_same_tensors() {
    let folder = Folder::new("mapped");
    let path = folder.path("a.safetensors");
    rushlight_io::safetensors::save(&StateDict::from_iter([("a".to_string(), values())]), &path).unwrap();
    let mapped = SafeTensors::open_with(&path, &LoadOptions::default().mmap(true)).unwrap();
    assert_eq!(mapped.tensor("a").unwrap().to_vec::<i64>().unwrap(), values().to_vec::<i64>().unwrap());
    assert_eq!(format!("{mapped:?}"), format!("{:?}", SafeTensors::open(&path).unwrap()));
}
