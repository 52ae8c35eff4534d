use crate::torchscript::difference;
use rushlight_graph::Model;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pt2").join(name)
}

#[test]
fn archives_of_torch_export_run_and_agree() {
    for name in ["convolutional", "transformer", "recurrent"] {
        let model = Model::load(fixture(&format!("{name}.pt2"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        let answers = rushlight_io::pt::load(fixture(&format!("{name}.answers.pt"))).unwrap();
        let input = answers.get("input").unwrap().as_tensor().unwrap().clone();
        let out = model.forward(&[input.into()]).unwrap_or_else(|e| panic!("{name}: {e}\n{}", model.text().unwrap()));
        let mut found = Vec::new();
        out.tensors(&mut found);
        let wanted = answers.get("outputs").unwrap().as_list().unwrap().to_vec();
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (a, b) in found.iter().zip(&wanted) {
            let worst = difference(&a.detach(), b.as_tensor().unwrap());
            assert!(worst < 1e-5, "{name}: {worst}");
        }
    }
}

#[test]
fn a_model_changes_its_buffers_and_inputs() {
    let answers = rushlight_io::pt::load(fixture("running.answers.pt")).unwrap();
    let same = |name: &str, a: &Tensor, b: &Value| {
        let worst = difference(&a.detach(), b.as_tensor().unwrap());
        assert!(worst < 1e-5, "{name}: {worst}");
    };
    for name in ["running", "running_functional"] {
        for frozen in [false, true] {
            let mut model = Model::load(fixture(&format!("{name}.pt2"))).unwrap_or_else(|e| panic!("{name}: {e}"));
            if frozen {
                model = model.freeze().unwrap();
            }
            let total = Tensor::zeros([1]).unwrap();
            for call in answers.get("calls").unwrap().as_list().unwrap() {
                let x = call.get("input").unwrap().as_tensor().unwrap().clone();
                let out = model.forward(&[x.into(), total.clone().into()]);
                let out = out.unwrap_or_else(|e| panic!("{name}: {e}\n{}", model.text().unwrap()));
                let mut found = Vec::new();
                out.tensors(&mut found);
                let wanted = call.get("outputs").unwrap().as_list().unwrap();
                found.iter().zip(wanted).for_each(|(a, b)| same(name, a, b));
                same(name, &total, call.get("total").unwrap());
            }
            let state = model.state_dict();
            for key in ["steps", "seen", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"] {
                same(key, &state[key], answers.get("state").unwrap().get(key).unwrap());
            }
        }
    }
}

#[test]
fn an_archive_has_its_names_sizes_and_parameters() {
    let model = Model::load(fixture("convolutional.pt2")).unwrap();
    let text = model.text().unwrap();
    assert!(text.contains("3, 8, 8]):") && text.contains("return {\"logits\": "), "{text}");
    let names = model.parameter_names();
    assert!(names.contains(&"conv.weight".to_string()) && !names.contains(&"bn.running_mean".to_string()), "{names:?}");
    assert!(model.state_dict().contains_key("bn.running_mean"));
}

#[test]
fn damaged_archives_give_errors() {
    let bytes = std::fs::read(fixture("recurrent.pt2")).unwrap();
    for at in (0..bytes.len()).step_by(61) {
        let mut copy = bytes.clone();
        copy[at] ^= 0x15;
        let _ = Model::from_bytes(&copy);
        assert!(Model::from_bytes(&bytes[..at]).is_err());
    }
}

/// Branches and loops of `torch.cond` and `while_loop` are refused, with what is read instead.
#[test]
fn control_flow_names_the_alternative() {
    let archive = rushlight_io::records::Records::open(fixture("recurrent.pt2")).unwrap();
    let names: Vec<String> = archive.names().map(str::to_string).collect();
    let mut records = Vec::new();
    for name in &names {
        let mut bytes = archive.bytes(name).unwrap();
        if name.ends_with("model.json") {
            let text = String::from_utf8(bytes).unwrap();
            let at = text.find("\"torch.ops.aten.").unwrap();
            let end = at + 1 + text[at + 1..].find('"').unwrap();
            bytes = format!("{}\"torch.ops.higher_order.cond{}", &text[..at], &text[end..]).into_bytes();
        }
        records.push((name.as_str(), bytes));
    }
    let path = std::env::temp_dir().join(format!("rushlight-cond-{}.pt2", std::process::id()));
    let all: Vec<(&str, &[u8])> = records.iter().map(|(n, b)| (*n, b.as_slice())).collect();
    rushlight_io::records::write(&path, &all).unwrap();
    let error = Model::load(&path).err().unwrap().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("'cond'") && error.contains("torch.jit.script"), "{error}");
}
