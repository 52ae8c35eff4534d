//! `rushlight plan` and the charts of `rushlight trace --pipeline`.

use crate::support::Folder;
use std::process::{Command, Output};

fn rushlight(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rushlight")).args(arguments).output().expect("the program")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_plan_recommends_and_writes_a_configuration() {
    let folder = Folder::new("plan");
    let path = folder.path("plan.json");
    let out =
        rushlight(&["plan", "--model", "70b", "--nodes=16", "--machine", "h100", "--write", &path.to_string_lossy()]);
    assert!(out.status.success() && text(&out).contains("Recommended: dp "), "{}", text(&out));
    let written: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    let (plan, mesh) = (&written["plan"], &written["plan"]["mesh"]);
    let ranks: u64 = ["pp", "dp", "tp"].iter().map(|name| mesh[name].as_u64().expect("a number")).product();
    assert_eq!((ranks, plan["devices"].as_u64()), (128, Some(128)));
    let out = rushlight(&["plan", "--scaling"]);
    assert_eq!(text(&out).lines().filter(|line| line.contains("| 1t |")).count(), 6, "{}", text(&out));
    for (arguments, reason) in [
        (vec!["plan", "--model", "9z"], "there is no model '9z'"),
        (vec!["plan", "--model", "1t", "--nodes", "1"], "nothing fits 8 devices"),
        (vec!["plan", "--nodes", "0", "--model", "7b"], "positive number"),
        (vec!["plan"], "--model is missing"),
    ] {
        let out = rushlight(&arguments);
        assert!(!out.status.success() && text(&out).contains(reason), "{}", text(&out));
    }
}

#[test]
fn a_plan_reaches_the_ranks() {
    let folder = Folder::new("plan-run");
    let path = folder.path("plan.json");
    let shown = path.to_string_lossy();
    let out = rushlight(&["plan", "--model", "7b", "--nodes", "2", "--data-parallel", "--write", &shown]);
    assert!(out.status.success(), "{}", text(&out));
    let run = ["run", "--standalone", "--nproc-per-node", "2"];
    let out = rushlight(&[&run[..], &["--plan", &shown, "--no-python", "sh", "-c", "echo $RUSHLIGHT_PLAN"]].concat());
    assert_eq!(text(&out).matches("/plan.json").count(), 2, "{}", text(&out));
    // A file that is no plan ends the job before it begins.
    std::fs::write(&path, r#"{"train_micro_batch_size_per_gpu": 1, "optimizer": {}}"#).expect("a file");
    let out = rushlight(&[&run[..], &["--plan", &shown, "--no-python", "echo", "begun"]].concat());
    let said = text(&out);
    assert!(!out.status.success() && said.contains("--plan") && said.contains("'optimizer'"), "{said}");
    assert!(!said.contains("begun"), "{said}");
}

#[test]
fn this_machine_is_measured() {
    let folder = Folder::new("measured");
    let path = folder.path("machine.json");
    let shown = path.to_string_lossy();
    let run = ["run", "--standalone", "--nproc-per-node", "2", "--no-python", env!("CARGO_BIN_EXE_rushlight")];
    let plan = ["plan", "--measure", &shown, "--precision", "f32"];
    let out = rushlight(&[&run[..], &plan[..]].concat());
    assert!(out.status.success() && text(&out).contains("\"inside_gb_per_s\""), "{}", text(&out));
    let sizes = ["--layers", "4", "--hidden", "256", "--heads", "4", "--batch", "16", "--precision", "f32"];
    let out = rushlight(&[&["plan", "--machine", &shown][..], &sizes[..]].concat());
    assert!(out.status.success() && text(&out).contains("on 2 devices"), "{}", text(&out));
    let out = rushlight(&["plan", "--measure", &shown, "--machine", &shown]);
    assert!(!out.status.success() && text(&out).contains("name one"), "{}", text(&out));
}

#[test]
fn a_schedule_is_drawn() {
    let folder = Folder::new("chart");
    let path = folder.path("chart.svg");
    let arguments =
        ["trace", "--pipeline", "1f1b", "--ranks", "4", "--microbatches", "8", "--svg", &path.to_string_lossy()];
    let out = rushlight(&arguments);
    assert!(text(&out).contains("bubble 27.3 %"), "{}", text(&out));
    assert!(std::fs::read_to_string(path).expect("a file").starts_with("<svg"));
    let out = rushlight(&["trace", "--pipeline", "dual", "--ranks", "2", "--microbatches", "2"]);
    assert!(!out.status.success() && text(&out).contains("there is no schedule 'dual'"), "{}", text(&out));
}
