//! `rushlight show`, `bench` and `convert`.

use std::path::PathBuf;
use std::process::Command;

fn fixture(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/script");
    folder.join(name).to_string_lossy().into_owned()
}

fn rushlight(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rushlight")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn models_are_converted_shown_and_timed() {
    let folder = std::env::temp_dir().join(format!("rushlight-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let archive = fixture("resnet_trace.pt");
    assert_eq!(rushlight(&["convert", &archive, &at("a.rlm")]), (true, String::new()));
    for (from, to) in [("a.rlm", "a.safetensors"), ("a.safetensors", "a.npz"), ("a.npz", "a.pt")] {
        assert_eq!(rushlight(&["convert", &at(from), &at(to)]), (true, String::new()));
    }
    let weights = rushlight::io::load(at("a.pt")).unwrap().to_state_dict().unwrap();
    assert_eq!(weights["fc.weight"].shape(), [5, 4]);
    let (good, text) = rushlight(&["show", &at("a.rlm")]);
    assert!(good && text.contains("#: namespace __torch__") && text.contains("fc.weight  float32[5, 4]"), "{text}");
    let (good, text) = rushlight(&["bench", &at("a.rlm"), "--input", "float32[2,3,16,16]", "--steps", "2"]);
    assert!(good && text.contains("median") && text.contains("float32[2, 3, 16, 16]"), "{text}");
    for (arguments, message) in [
        (vec!["bench", &archive], "give --input"),
        (vec!["bench", &archive, "--input", "float33[2]"], "--input takes"),
        (vec!["show", "missing.rlm"], "missing.rlm"),
        (vec!["convert", &archive, "out.txt"], "must end in"),
        (vec!["convert", &at("a.npz"), "out.rlm"], "neither .rlm, TorchScript nor .pt2"),
    ] {
        let (good, text) = rushlight(&arguments);
        assert!(!good && text.contains(message), "{arguments:?}: {text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
