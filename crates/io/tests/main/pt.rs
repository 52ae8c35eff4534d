use crate::{Folder, assert_ramp, fixture};
use rushlight_core::{DType, ErrorKind};
use rushlight_io::{LoadOptions, pt};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, Key, Value};

fn load(name: &str) -> Value {
    pt::load(fixture(name)).unwrap()
}

#[test]
fn every_dtype_of_torch_save() {
    for name in ["dtypes.pt", "dtypes_protocol5.pt"] {
        for options in [LoadOptions::default().verify(true), LoadOptions::default().mmap(true)] {
            let state = pt::load_with(fixture(name), &options).unwrap().to_state_dict().unwrap();
            assert_eq!(state.len(), DType::COMPUTED.len());
            for dtype in DType::COMPUTED {
                assert_ramp(&state[dtype.name()], &[2, 3], dtype);
            }
        }
    }
}

#[test]
fn files_of_big_endian_machines() {
    let state = load("big_endian.pt").to_state_dict().unwrap();
    for dtype in [DType::F32, DType::I16, DType::Bool] {
        assert_ramp(&state[dtype.name()], &[2, 3], dtype);
    }
}

#[test]
fn views_keep_strides_and_share_memory() {
    let state = load("views.pt").to_state_dict().unwrap();
    let base = &state["base"];
    assert_ramp(base, &[4, 6], DType::F32);
    assert_eq!(state["row"].to_vec::<f32>().unwrap(), [5., 6., 0., 1., 2., 3.]);
    assert_eq!((state["transposed"].shape(), state["transposed"].strides()), (&[6, 4][..], &[1, 6][..]));
    assert_eq!(state["every_second"].strides(), [6, 2]);
    assert_eq!(state["expanded"].strides(), [0, 1]);
    assert_eq!(state["expanded"].to_vec::<f32>().unwrap(), [0., 1., 2., 0., 1., 2.]);
    assert_eq!(state["scalar"].item::<f32>().unwrap(), 2.5);
    assert_eq!(state["empty"].shape(), [0, 3]);
    assert_eq!((state["empty_int"].shape(), state["empty_int"].dtype()), (&[0][..], DType::I64));
    assert!(state["same"].is_same(base) && state["row"].shares_storage(base));

    // Changes are visible through the views, but not in the file.
    state["row"].fill_(9.0).unwrap();
    assert_eq!(base.select(0, 2).unwrap().to_vec::<f32>().unwrap(), [9.0; 6]);
    assert_ramp(&load("views.pt").to_state_dict().unwrap()["base"], &[4, 6], DType::F32);
}

#[test]
fn ordered_dictionaries_stay_ordered_and_keep_their_attributes() {
    let folder = Folder::new("ordered");
    let path = folder.path("ordered.pt");
    let metadata = Dict::from_iter([("".into(), Dict::from_iter([("version".into(), 1.into())]).into())]);
    let attributes = Dict::from_iter([("_metadata".into(), metadata.ordered(Dict::new()).into())]);
    let weights = Dict::from_iter([("weight".into(), Tensor::new([1.0f32, 2.0]).unwrap().into())]);
    let state = Dict::from_iter([
        ("model".into(), weights.ordered(attributes).into()),
        ("empty".into(), Dict::new().ordered(Dict::new()).into()),
        ("plain".into(), Dict::new().into()),
    ]);
    pt::save(&state.into(), &path).unwrap();
    let state = pt::load(&path).unwrap();
    let dict = |key: &str| state.get(key).unwrap().as_dict().unwrap();
    assert!(!state.as_dict().unwrap().is_ordered() && !dict("plain").is_ordered());
    assert!(dict("empty").is_ordered() && dict("empty").attributes().unwrap().is_empty());
    assert_eq!(dict("model")[&Key::from("weight")].as_tensor().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let metadata = &dict("model").attributes().unwrap()[&Key::from("_metadata")];
    assert!(metadata.as_dict().unwrap().is_ordered());
    assert_eq!(metadata.get("").unwrap().get("version").unwrap().as_int().unwrap(), 1);
}

#[test]
fn plain_values_and_containers() {
    let v = load("containers.pt");
    assert!(matches!(v.get("none").unwrap(), Value::None));
    assert!(v.get("true").unwrap().as_bool().unwrap());
    for (key, value) in [("small", 7), ("negative", -5), ("large", (1 << 40) + 1), ("minimum", i64::MIN)] {
        assert_eq!(v.get(key).unwrap().as_int().unwrap(), value);
    }
    assert_eq!(v.get("float").unwrap().as_float().unwrap(), 0.1);
    assert_eq!(v.get("infinity").unwrap().as_float().unwrap(), f64::INFINITY);
    assert_eq!(v.get("text").unwrap().as_str().unwrap(), "käse 🦀");
    assert_eq!(v.get("bytes").unwrap().as_bytes().unwrap(), (0..=255).collect::<Vec<u8>>());
    assert_eq!(v.get("no_bytes").unwrap().as_bytes().unwrap(), b"");
    for (key, text) in [
        ("list", "[1, [2, [3, []]], (4)]"),
        ("tuple", "(1, \"a\", None, (2.5, false))"),
        ("ordered", "{Str(\"b\"): 1, Str(\"a\"): 2}"),
        ("counter", "{Str(\"a\"): 2, Str(\"b\"): 1}"),
        ("size", "(2, 3)"),
        ("dtype", "\"torch.bfloat16\""),
        ("device", "\"cuda:1\""),
        ("set", "[3]"),
    ] {
        let shown = format!("{:?}", v.get(key).unwrap());
        assert_eq!(shown.replace(",)", ")"), text, "{key}");
    }
    assert_eq!(v.get(3).unwrap().as_str().unwrap(), "integer key");
    let by_default = load("defaultdict.pt");
    assert_ramp(by_default.get("x").unwrap().as_list().unwrap()[0].as_tensor().unwrap(), &[2], DType::F32);
}

#[test]
fn a_checkpoint_of_model_and_optimizer() {
    let checkpoint = load("checkpoint.pt");
    assert_eq!(checkpoint.get("epoch").unwrap().as_int().unwrap(), 2);
    let model = checkpoint.get("model").unwrap().to_state_dict().unwrap();
    assert_eq!(model["0.weight"].shape(), [4, 3]);
    assert_eq!(model["1.num_batches_tracked"].item::<i64>().unwrap(), 2);
    // The same state dict through another format and library.
    let other = rushlight_io::safetensors::load(fixture("model.safetensors")).unwrap();
    assert_eq!(other.len(), model.len());
    for (name, tensor) in &model {
        assert_eq!(tensor.to_vec::<f64>().unwrap(), other[name].to_vec::<f64>().unwrap(), "{name}");
    }
    let optimizer = checkpoint.get("optimizer").unwrap();
    let first = optimizer.get("state").unwrap().get(0).unwrap();
    assert_eq!(first.get("step").unwrap().as_float().unwrap(), 2.0);
    assert_eq!(first.get("exp_avg").unwrap().as_tensor().unwrap().shape(), [4, 3]);
    let group = &optimizer.get("param_groups").unwrap().as_list().unwrap()[0];
    assert_eq!(group.get("lr").unwrap().as_float().unwrap(), 1e-3);
    assert_eq!(group.get("params").unwrap().as_list().unwrap().len(), 6);
    assert!(matches!(group.get("betas").unwrap(), Value::Tuple(_)));
}

#[test]
fn parameters_are_tensors() {
    let list = load("parameters.pt");
    let tensors: Vec<&Tensor> = list.as_list().unwrap().iter().map(|v| v.as_tensor().unwrap()).collect();
    assert_ramp(tensors[0], &[2, 2], DType::F32);
    assert_eq!(tensors.iter().map(|t| t.requires_grad()).collect::<Vec<_>>(), [true, true, false, true]);
}

#[test]
fn eight_bit_floats_are_read() {
    let dict = load("float8.pt");
    let a = dict.get("a").unwrap().as_tensor().unwrap();
    assert_eq!((a.dtype(), a.to_vec::<f32>().unwrap()), (DType::F8E4M3FN, vec![1.0, 1.0]));
    let complex = load("complex.pt");
    assert_eq!(complex.get("a").unwrap().as_tensor().unwrap().dtype(), DType::C64);
}

#[test]
fn what_is_not_read_says_why() {
    for (name, kind, words) in [
        ("legacy.pt", ErrorKind::Unsupported, "torch.save(torch.load(path), new_path)"),
        ("torchscript.pt", ErrorKind::Unsupported, "TorchScript"),
        ("hostile/global_print.pt", ErrorKind::Unsupported, "__builtin__.print"),
        ("hostile/global_system.pt", ErrorKind::Unsupported, "os.system"),
        ("hostile/stack_global.pt", ErrorKind::Unsupported, "posix.system"),
        ("hostile/list_in_itself.pt", ErrorKind::Unsupported, "contains itself"),
        ("hostile/deep.pt", ErrorKind::Unsupported, "256 deep"),
        ("hostile/compressed.pt", ErrorKind::Unsupported, "compressed"),
        ("hostile/overlapping_entries.pt", ErrorKind::Io, "overlap"),
    ] {
        let error = pt::load(fixture(name)).unwrap_err();
        assert!(error.to_string().contains(words) && error.to_string().contains(name), "{name}: {error}");
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
}

fn nested() -> Value {
    let base = Tensor::arange(0, 24, 1).unwrap().to_dtype(DType::F32).unwrap().reshape([4, 6]).unwrap();
    let mut dict = Dict::new();
    dict.insert("base".into(), Value::from(&base));
    dict.insert("columns".into(), base.t().unwrap().narrow(0, 1, 3).unwrap().into());
    dict.insert("weight".into(), Tensor::new([1.5f32]).unwrap().requires_grad_(true).unwrap().into());
    for dtype in DType::ALL {
        dict.insert(dtype.name().into(), base.to_dtype(dtype).unwrap().into());
    }
    dict.insert("empty".into(), Tensor::zeros([0, 3]).unwrap().into());
    let numbers = [0, -1, 255, 256, 65_535, 65_536, -40_000, 1 << 31, i64::MAX, i64::MIN];
    dict.insert("numbers".into(), Value::List(numbers.map(Value::Int).into()));
    dict.insert(Key::Int(-3), Value::Tuple(vec![Value::None, true.into(), 0.1.into(), "ü".into()]));
    dict.insert("bytes".into(), Value::Bytes((0..=255).collect()));
    dict.insert(
        "nothing".into(),
        Value::Tuple(vec![Value::List(vec![]), Value::Dict(Dict::new()), Value::Tuple(vec![])]),
    );
    dict.into()
}

#[test]
fn what_is_written_is_read() {
    let folder = Folder::new("pt");
    let path = folder.path("x.pt");
    let value = nested();
    pt::save(&value, &path).unwrap();
    let back = pt::load_with(&path, &LoadOptions::default().verify(true)).unwrap();
    assert_eq!(format!("{back:?}"), format!("{value:?}"));
    for (key, value) in value.as_dict().unwrap() {
        if let Value::Tensor(t) = value {
            let b = back.get(key.clone()).unwrap().as_tensor().unwrap();
            assert_eq!((b.to_vec::<f64>().unwrap(), b.strides()), (t.to_vec::<f64>().unwrap(), t.strides()), "{key}");
            assert_eq!(b.requires_grad(), t.requires_grad());
        }
    }
    assert_eq!(back.get("bytes").unwrap().as_bytes().unwrap(), value.get("bytes").unwrap().as_bytes().unwrap());
    let (base, columns) = (back.get("base").unwrap().as_tensor().unwrap(), back.get("columns").unwrap());
    assert!(columns.as_tensor().unwrap().shares_storage(base));

    // Saving over the mapped file does not change the tensors.
    let kept = base.to_vec::<f32>().unwrap();
    pt::save(&Value::None, &path).unwrap();
    assert_eq!(base.to_vec::<f32>().unwrap(), kept);

    let mut written = Vec::new();
    pt::write(&value, &mut written).unwrap();
    assert_eq!(format!("{:?}", pt::from_bytes(&written).unwrap()), format!("{value:?}"));
}

#[test]
fn damage_is_found_when_asked_for() {
    let folder = Folder::new("pt-damage");
    let path = folder.path("x.pt");
    pt::save(&Value::from(Tensor::full([100], 3.0).unwrap()), &path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let place = bytes.windows(4).position(|w| w == 3.0f32.to_le_bytes()).unwrap();
    bytes[place + 1] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(pt::load(&path).is_ok());
    let error = pt::load_with(&path, &LoadOptions::default().verify(true)).unwrap_err().to_string();
    assert!(error.contains("archive/data/0") && error.contains("checksum"), "{error}");
}

#[test]
fn values_too_deep_to_write_are_errors() {
    let deep = (0..1000).fold(Value::None, |inner, _| Value::List(vec![inner]));
    assert!(pt::write(&deep, &mut Vec::new()).unwrap_err().to_string().contains("256 deep"));
}

#[test]
fn large_storages_are_summed_beside_the_writing() {
    let big = Tensor::arange(0, 3 << 20, 1).unwrap();
    let mut bytes = Vec::new();
    pt::write(&Value::from(&big), &mut bytes).unwrap();
    let folder = Folder::new("pt-large");
    std::fs::write(folder.path("x.pt"), bytes).unwrap();
    let back = pt::load_with(folder.path("x.pt"), &LoadOptions::default().verify(true)).unwrap();
    assert_eq!(back.as_tensor().unwrap().to_vec::<i64>().unwrap(), big.to_vec::<i64>().unwrap());
}

#[test]
fn formats_are_told_by_contents_and_extensions() {
    let folder = Folder::new("formats");
    let tensor = Tensor::new([[1.0f32, 2.0]]).unwrap();
    let mut dict = Dict::new();
    dict.insert("a".into(), Value::from(&tensor));
    let dict = Value::from(dict);
    for name in ["x.pt", "x.safetensors", "x.npz"] {
        rushlight_io::save(&dict, folder.path(name)).unwrap();
        std::fs::rename(folder.path(name), folder.path("unnamed")).unwrap();
        let back = rushlight_io::load(folder.path("unnamed")).unwrap();
        assert_eq!(back.get("a").unwrap().as_tensor().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    }
    rushlight_io::save(&tensor, folder.path("x.npy")).unwrap();
    assert_eq!(rushlight_io::load(folder.path("x.npy")).unwrap().as_tensor().unwrap().shape(), [1, 2]);
    assert!(rushlight_io::save(&dict, folder.path("x.npy")).is_err());
    assert!(rushlight_io::save(&dict, folder.path("x.zip")).unwrap_err().to_string().contains(".safetensors"));
    std::fs::write(folder.path("text"), "hello").unwrap();
    assert!(rushlight_io::load(folder.path("text")).unwrap_err().to_string().contains("neither"));
    assert!(rushlight_io::load(fixture("legacy.pt")).unwrap_err().to_string().contains("torch.save"));
}
