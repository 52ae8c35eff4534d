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
    // A folder of Hugging Face's, in one file and in shards, and back.
    for (options, files) in [(&[][..], 1), (&["--max-shard-size", "1KB"], 4)] {
        let (source, target) = (at("a.pt"), at(&format!("hf{files}/")));
        let arguments = [&["convert"], options, &[&source, &target]].concat();
        assert_eq!(rushlight(&arguments), (true, String::new()));
        let found = std::fs::read_dir(&target).unwrap().count();
        assert_eq!(found, files);
        assert_eq!(rushlight(&["convert", &target, &at("b.npz")]), (true, String::new()));
        let back = rushlight::io::load(at("b.npz")).unwrap().to_state_dict().unwrap();
        assert_eq!(back.len(), weights.len());
        for (name, tensor) in &weights {
            assert_eq!(back[name].to_vec::<f64>().unwrap(), tensor.to_vec::<f64>().unwrap(), "{name}");
        }
        assert!(rushlight(&arguments).1.contains("use a new folder"));
    }
    // TorchScript to ONNX, with a free batch.
    let onnx = at("a.onnx");
    assert_eq!(rushlight(&["convert", "--input", "float32[1:2,3,16,16]", &archive, &onnx]), (true, String::new()));
    let (x, load) =
        (rushlight::Tensor::randn([3, 3, 16, 16]).unwrap(), |path: &str| rushlight::jit::load(path).unwrap());
    let run = |path: &str| load(path).forward(&[x.clone().into()]).unwrap().to_tensor().unwrap();
    let far = run(&onnx).sub(&run(&archive)).unwrap().abs().unwrap().max(..).unwrap().item::<f32>().unwrap();
    assert!(far < 1e-4, "{far}");
    let (good, text) = rushlight(&["show", &at("a.rlm")]);
    assert!(good && text.contains("#: namespace __torch__") && text.contains("fc.weight  float32[5, 4]"), "{text}");
    // The picture: ops, modules, shapes and nothing from elsewhere.
    let (good, text) = rushlight(&["show", "--html", &at("a.html"), &at("a.rlm")]);
    assert!(good && text.contains("open it in a browser"), "{text}");
    let page = std::fs::read_to_string(at("a.html")).unwrap();
    for part in [">_convolution</text>", ">fc: 5×4, 5</text>", "class=\"group\"", "<details><summary>Program"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("src="));
    let (good, text) = rushlight(&["bench", &at("a.rlm"), "--input", "float32[2,3,16,16]", "--steps", "2"]);
    assert!(good && text.contains("median") && text.contains("float32[2, 3, 16, 16]"), "{text}");
    for (arguments, message) in [
        (vec!["bench", &archive], "give --input"),
        (vec!["bench", &archive, "--input", "float33[2]"], "--input takes"),
        (vec!["show", "missing.rlm"], "missing.rlm"),
        (vec!["convert", &archive, "out.txt"], "must end in"),
        (vec!["convert", &archive, "out.onnx"], "give --input"),
        (vec!["convert", &archive, "out.onnx", "--input", "float32"], "--input takes"),
        (vec!["convert", &archive, "out.rlm", "--input", "float32[1]"], "--input has no meaning"),
        (vec!["convert", &archive, "out/", "--max-shard-size", "x"], "takes a number of bytes"),
        (vec!["convert", &archive, "out/", "--fast"], "unknown argument --fast"),
        (vec!["convert", &at("a.npz"), "out.rlm"], "neither .rlm, TorchScript nor .pt2"),
    ] {
        let (good, text) = rushlight(&arguments);
        assert!(!good && text.contains(message), "{arguments:?}: {text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
