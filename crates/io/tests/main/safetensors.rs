use crate::{Folder, assert_ramp, fixture};
use rushlight_core::{DType, ErrorKind};
use rushlight_io::LoadOptions;
use rushlight_io::safetensors::{self, Metadata, SafeTensors};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;

#[test]
fn every_dtype_of_the_python_library() {
    let file = SafeTensors::open(fixture("dtypes.safetensors")).unwrap();
    for dtype in DType::COMPUTED {
        assert_ramp(&file.tensor(dtype.name()).unwrap(), &[2, 3], dtype);
    }
    assert_eq!(file.tensor("scalar").unwrap().item::<f32>().unwrap(), 2.5);
    assert_eq!(file.tensor("empty").unwrap().shape(), [0, 3]);
    assert_eq!(file.metadata()["note"], "käse \"quoted\"");
    assert_eq!(file.info("bfloat16").unwrap(), ("BF16", &[2, 3][..]));
    assert!(file.tensor("nope").unwrap_err().to_string().contains("no tensor 'nope'"));
    let read = safetensors::load_with(fixture("dtypes.safetensors"), &LoadOptions::default().mmap(true)).unwrap();
    assert_eq!(read.len(), 12);
}

#[test]
fn changes_stay_in_memory() {
    let file = SafeTensors::open(fixture("dtypes.safetensors")).unwrap();
    let (a, b) = (file.tensor("float32").unwrap(), file.tensor("float32").unwrap());
    assert!(a.shares_storage(&b));
    a.fill_(5.0).unwrap();
    assert_eq!(b.to_vec::<f32>().unwrap(), [5.0; 6]);
    drop((file, a));
    assert_eq!(b.to_vec::<f32>().unwrap(), [5.0; 6]);
    assert_ramp(&safetensors::load(fixture("dtypes.safetensors")).unwrap()["float32"], &[2, 3], DType::F32);
}

#[test]
fn misaligned_tensors_are_copied() {
    let state = safetensors::load(fixture("misaligned.safetensors")).unwrap();
    assert_eq!(state["a"].to_vec::<u8>().unwrap(), [9]);
    assert_eq!(state["b"].to_vec::<f32>().unwrap(), [1.5, -2.0]);
}

#[test]
fn any_byte_but_zero_is_true() {
    let header = br#"{"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}"#;
    let file = [&(header.len() as u64).to_le_bytes(), &header[..], &[0, 1, 2, 255]].concat();
    let tensor = SafeTensors::from_bytes(&file).unwrap().tensor("a").unwrap();
    assert_eq!(tensor.to_vec::<bool>().unwrap(), [false, true, true, true]);
}

#[test]
fn other_dtypes_are_named() {
    let header = br#"{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}"#;
    let file = [&(header.len() as u64).to_le_bytes(), &header[..], &[0, 1]].concat();
    let error = SafeTensors::from_bytes(&file).and_then(|file| file.tensors()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
    assert!(error.to_string().contains("tensor 'a'") && error.to_string().contains("F4"), "{error}");
}

#[test]
fn eight_bit_floats_are_read() {
    let state = safetensors::load(fixture("float8.safetensors")).unwrap();
    assert_eq!((state["a"].dtype(), state["a"].to_vec::<f32>().unwrap()), (DType::F8E4M3FN, vec![1.0, 1.0]));
}

fn state() -> StateDict {
    let mut state = StateDict::new();
    // The format has no name for these two; a write of them is refused.
    for dtype in DType::ALL.into_iter().rev().filter(|d| !matches!(d, DType::C32 | DType::C128)) {
        state.insert(dtype.name().into(), Tensor::arange(0, 7, 1).unwrap().to_dtype(dtype).unwrap());
    }
    let matrix = Tensor::arange(0, 6, 1).unwrap().reshape([2, 3]).unwrap();
    state.insert("transposed \"\n".into(), matrix.t().unwrap());
    state.insert("row".into(), matrix.select(0, 1).unwrap());
    state.insert("empty".into(), matrix.narrow(0, 2, 0).unwrap());
    state.insert("scalar".into(), Tensor::scalar(2.5).unwrap().requires_grad_(true).unwrap());
    state
}

fn assert_same(a: &StateDict, b: &StateDict) {
    assert_eq!(a.len(), b.len());
    for (name, t) in a {
        assert_eq!((t.shape(), t.dtype()), (b[name].shape(), b[name].dtype()), "{name}");
        assert_eq!(t.to_vec::<f64>().unwrap(), b[name].to_vec::<f64>().unwrap(), "{name}");
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = Folder::new("safetensors");
    let state = state();
    let metadata = Metadata::from_iter([("a".to_string(), "ü\"".to_string()), ("b".to_string(), String::new())]);
    safetensors::save_with_metadata(&state, &metadata, folder.path("x.safetensors")).unwrap();
    let file = SafeTensors::open(folder.path("x.safetensors")).unwrap();
    assert_eq!(file.metadata(), &metadata);
    assert_eq!(file.names().collect::<Vec<_>>(), state.keys().collect::<Vec<_>>());
    assert_same(&state, &file.tensors().unwrap());
    let mut bytes = Vec::new();
    safetensors::write(&state, &Metadata::new(), &mut bytes).unwrap();
    assert_same(&state, &SafeTensors::from_bytes(&bytes).unwrap().tensors().unwrap());
    assert_eq!(folder.names(), ["x.safetensors"]);

    safetensors::save(&StateDict::new(), folder.path("x.safetensors")).unwrap();
    assert!(safetensors::load(folder.path("x.safetensors")).unwrap().is_empty());
    let reserved = StateDict::from_iter([("__metadata__".to_string(), Tensor::zeros([1]).unwrap())]);
    assert!(
        safetensors::save(&reserved, folder.path("y.safetensors")).unwrap_err().to_string().contains("__metadata__")
    );
    assert_eq!(folder.names(), ["x.safetensors"]);
}

#[test]
fn shards_and_their_index() {
    let folder = Folder::new("shards");
    let state = state();
    safetensors::save_sharded(&state, folder.path("one"), 1 << 20).unwrap();
    assert!(folder.path("one/model.safetensors").exists());
    assert_same(&state, &safetensors::load_sharded(folder.path("one")).unwrap());

    safetensors::save_sharded(&state, folder.path("many"), 60).unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path("many")).unwrap().collect();
    assert!(names.len() > 3);
    let index = folder.path("many/model.safetensors.index.json");
    assert_same(&state, &safetensors::load_sharded(&index).unwrap());
    assert_same(&state, &rushlight_io::load(folder.path("many")).unwrap().to_state_dict().unwrap());

    let text = std::fs::read_to_string(&index).unwrap();
    for (from, to, words) in [
        ("model-00001-of", "../model-00001-of", "not a file beside it"),
        ("model-00001-of", "/model-00001-of", "not a file beside it"),
        ("model-00001-of", "other", "other"),
        ("\"bool\"", "\"unknown\"", "unknown"),
        ("weight_map", "weights", "weight_map"),
        ("{", "", "not JSON"),
    ] {
        std::fs::write(&index, text.replacen(from, to, 1)).unwrap();
        let error = safetensors::load_sharded(&index).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}
