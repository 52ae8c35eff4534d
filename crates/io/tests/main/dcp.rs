//! Distributed checkpoints: PyTorch's (`tests/fixtures/make_dcp.py`), our own, and damaged ones.

use crate::{Folder, assert_ramp, fixture, ramp};
use rushlight_core::DType;
use rushlight_io::dcp::{self, Entry, METADATA, Metadata, Part, Reader, SafetensorsPlan, Step};
use rushlight_tensor::Tensor;

#[test]
fn pytorchs_checkpoint_of_two_ranks_is_read_in_any_parts() {
    let reader = Reader::open(fixture("dcp")).unwrap();
    assert_ramp(&reader.tensor("model.rows").unwrap(), &[5, 4], DType::F32);
    assert_ramp(&reader.tensor("model.columns").unwrap(), &[3, 6], DType::BF16);
    assert_ramp(&reader.tensor("model.all").unwrap(), &[4], DType::F32);
    assert_ramp(&reader.tensor("model.plain").unwrap(), &[2, 3], DType::I64);
    assert_eq!(reader.tensor("optimizer.state.0.step").unwrap().item::<f32>().unwrap(), 3.0);
    assert_eq!(reader.object("epoch").unwrap().as_int().unwrap(), 7);
    // Across the border of two ranks' parts.
    let whole = ramp(&[5, 4], DType::F32);
    let part = reader.read("model.rows", &[2, 1], &[2, 2]).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(part, [whole[9], whole[10], whole[13], whole[14]]);
    let Some(Entry::Tensor { chunks, .. }) = reader.metadata().get("model.columns") else { panic!("no tensor") };
    assert_eq!(chunks.len(), 2);
    let path = reader.metadata().paths().iter().find(|(name, _)| name == "optimizer.param_groups.0.lr").unwrap();
    let key = |text: &str| Step::Key(text.into());
    assert_eq!(path.1, [key("optimizer"), key("param_groups"), Step::Index(0), key("lr")]);
    let message = reader.read("model.rows", &[4, 0], &[2, 4]).unwrap_err().to_string();
    assert!(message.contains("its shape is [5, 4]"), "{message}");
    assert!(reader.tensor("model.none").unwrap_err().to_string().contains("has no 'model.none'"));
}

fn written(folder: &Folder) -> Metadata {
    let mut metadata = Metadata::default();
    for rank in 0..3usize {
        let rows = Tensor::full([2, 3], rank as f32).unwrap();
        let parts = [
            Part::tensor("w", &[6, 3], &[2 * rank, 0], &rows).unwrap(),
            Part::tensor("scalar", &[], &[], &Tensor::full([], 5f64).unwrap()).unwrap(),
        ];
        metadata.extend(dcp::write_parts(folder.path(""), &dcp::file_name(rank, 0), &parts).unwrap()).unwrap();
    }
    metadata.set_path("w", vec![Step::Key("w".into())]);
    metadata
}

#[test]
fn parts_of_three_ranks_become_one_tensor() {
    let folder = Folder::new("dcp-own");
    let metadata = written(&folder);
    let message = Reader::open(folder.path("")).err().unwrap().to_string();
    assert!(message.contains("no distributed checkpoint"), "{message}");
    dcp::commit(folder.path(""), &metadata).unwrap();
    let reader = Reader::open(folder.path("")).unwrap();
    assert_eq!(reader.metadata(), &metadata);
    assert_eq!(reader.read("w", &[1, 0], &[4, 1]).unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 1.0, 2.0]);
    assert_eq!(reader.tensor("scalar").unwrap().item::<f64>().unwrap(), 5.0);
    assert_eq!(folder.names(), [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]);
}

#[test]
fn parts_must_fit_and_cover() {
    let part = Tensor::ones([2, 3]).unwrap();
    let message = Part::tensor("w", &[3, 3], &[2, 0], &part).unwrap_err().to_string();
    assert!(message.contains("no part of shape [2, 3] at [2, 0]"), "{message}");
    let folder = Folder::new("dcp-gap");
    let parts = [Part::tensor("w", &[4, 3], &[0, 0], &part).unwrap()];
    let metadata = dcp::write_parts(folder.path(""), "__0_0.distcp", &parts).unwrap();
    let message = dcp::commit(folder.path(""), &metadata).unwrap_err().to_string();
    assert!(message.contains("parts of 'w' have 6 elements"), "{message}");
    let mut other = Metadata::default();
    let wide = Part::tensor("w", &[4, 4], &[0, 0], &Tensor::ones([4, 4]).unwrap()).unwrap();
    other.extend(dcp::write_parts(folder.path(""), "__1_0.distcp", &[wide]).unwrap()).unwrap();
    let message = other.extend(metadata).unwrap_err().to_string();
    assert!(message.contains("ranks disagree about 'w'"), "{message}");
}

#[test]
fn damaged_metadata_gives_errors() {
    let folder = Folder::new("dcp-damaged");
    dcp::commit(folder.path(""), &written(&folder)).unwrap();
    let good = std::fs::read(folder.path(METADATA)).unwrap();
    for length in (0..good.len()).step_by(7) {
        std::fs::write(folder.path(METADATA), &good[..length]).unwrap();
        assert!(Reader::open(folder.path("")).is_err(), "{length}");
    }
    // Any byte may change: never a panic, and reading stays within the folder.
    for at in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x15;
        std::fs::write(folder.path(METADATA), &bad).unwrap();
        if let Ok(reader) = Reader::open(folder.path("")) {
            let names: Vec<String> = reader.metadata().entries().iter().map(|(name, _)| name.clone()).collect();
            names.iter().for_each(|name| drop(reader.tensor(name)));
        }
    }
    let evil = b"\x80\x04cos\nsystem\n\x8c\x04true\x85R.";
    std::fs::write(folder.path(METADATA), evil).unwrap();
    let message = Reader::open(folder.path("")).err().unwrap().to_string();
    assert!(message.contains("os.system") && message.contains("Nothing was run"), "{message}");
    let text = String::from_utf8_lossy(&good).into_owned();
    assert!(text.contains("__0_0.distcp"));
    let mut outside = good.clone();
    let at = good.windows(12).position(|w| w == b"__0_0.distcp").unwrap();
    outside[at..at + 12].copy_from_slice(b"../../passwd");
    std::fs::write(folder.path(METADATA), outside).unwrap();
    let message = Reader::open(folder.path("")).err().unwrap().to_string();
    assert!(message.contains("outside of the checkpoint's folder"), "{message}");
}

#[test]
fn ranks_write_hugging_faces_files_together() {
    let folder = Folder::new("dcp-safetensors");
    let whole = Tensor::arange(0, 24, 1).unwrap().to_dtype(DType::F32).unwrap().view([2, 3, 4]).unwrap();
    let described = [
        ("cube".to_string(), DType::F32, vec![2, 3, 4]),
        ("rows".to_string(), DType::BF16, vec![5, 2]),
        ("one".to_string(), DType::I64, vec![]),
    ];
    let plan = SafetensorsPlan::new(&described, 100).unwrap();
    plan.create(folder.path("")).unwrap();
    let rows = Tensor::full([5, 2], 3f32).unwrap().to_dtype(DType::BF16).unwrap();
    for rank in 0..3isize {
        // Parts along every dimension but the last, and rows of uneven size.
        let middle = whole.narrow(1, rank, 1).unwrap();
        plan.write(folder.path(""), "cube", &[0, rank as usize, 0], &middle).unwrap();
        let (begin, count) = [(0, 2), (2, 2), (4, 1)][rank as usize];
        plan.write(folder.path(""), "rows", &[begin as usize, 0], &rows.narrow(0, begin, count).unwrap()).unwrap();
    }
    plan.write(folder.path(""), "one", &[], &Tensor::full([], 7i64).unwrap()).unwrap();
    assert!(Reader::open_safetensors(folder.path("")).is_err(), "files have no names before the commit");
    plan.commit(folder.path("")).unwrap();
    let loaded = rushlight_io::safetensors::load_sharded(folder.path("")).unwrap();
    assert_eq!(loaded["cube"].to_vec::<f32>().unwrap(), whole.to_vec::<f32>().unwrap());
    assert_eq!(loaded["one"].item::<i64>().unwrap(), 7);
    let reader = Reader::open_safetensors(folder.path("")).unwrap();
    let part = reader.read("cube", &[1, 1, 2], &[1, 2, 2]).unwrap();
    assert_eq!(part.to_vec::<f32>().unwrap(), [18.0, 19.0, 22.0, 23.0]);
    assert_eq!(reader.read("rows", &[3, 1], &[2, 1]).unwrap().to_vec::<f64>().unwrap(), [3.0, 3.0]);
    let message = plan.write(folder.path(""), "rows", &[4, 0], &rows).unwrap_err().to_string();
    assert!(message.contains("'rows'") && message.contains("[5, 2]"), "{message}");
    assert!(plan.write(folder.path(""), "none", &[], &rows).is_err());
}
