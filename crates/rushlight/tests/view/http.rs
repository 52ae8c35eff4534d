//! The server without a browser: data, access control, hostile requests.

use crate::support::*;
use std::io::{BufRead, BufReader, Write};

fn id(runs: &serde_json::Value, name: &str) -> u64 {
    let all = runs["runs"].as_array().expect("runs");
    all.iter().find(|run| run["name"] == name).and_then(|run| run["id"].as_u64()).expect("the run")
}

#[test]
fn runs_curves_images_texts_and_logs() {
    let folder = Folder::new("data");
    make_runs(&folder.0);
    let server = Server::start(&folder.0, &[], &[]);
    let runs = server.runs();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(4));
    let first = id(&runs, "run-0");
    let scalars = server.json(&format!("/api/scalars?run={first}"));
    let loss = &scalars["series"]["loss"];
    assert_eq!((loss["steps"].as_array().map(Vec::len), &loss["all"]), (Some(200), &true.into()));
    let third = server.json(&format!("/api/scalars?run={}", id(&runs, "run-2")));
    assert_eq!(third["series"]["loss"]["values"][95], "NaN", "JSON has no such number");
    let summary = runs["runs"].as_array().unwrap().iter().find(|run| run["name"] == "run-1").unwrap();
    assert_eq!((&summary["hparams"]["width"], &summary["ranks"]), (&128.into(), &serde_json::json!([0, 1, 2, 3])));
    let ranks = server.json(&format!("/api/ranks?run={first}"));
    assert_eq!(ranks["ranks"]["2"]["system/steps_per_second"]["values"][0], 3.0);
    let hostile = id(&runs, HOSTILE);
    let histograms = server.json(&format!("/api/histograms?run={hostile}"));
    let rows = histograms["histograms"]["weights"].as_array().expect("histograms");
    assert_eq!(rows.len(), 10);
    let total: f64 = rows[3]["counts"].as_array().unwrap().iter().filter_map(|c| c.as_f64()).sum();
    assert_eq!(total, 500.0);
    let texts = server.json(&format!("/api/texts?run={hostile}"));
    assert_eq!(texts["texts"]["note"][0]["text"], "<script>document.pwned = 1</script> plain");
    let (head, png) = server.get(&format!("/api/image?run={hostile}&tag=samples&step=90"), "");
    assert!(head.contains("image/png") && png.starts_with(b"\x89PNG"), "{head}");
    let log = server.json(&format!("/api/log?run={first}&file=logs/rank-3.log"));
    assert_eq!(log["text"], "epoch 1/4 <b>not bold</b>\n");
}

#[test]
fn new_values_are_told_of_as_they_come() {
    let folder = Folder::new("live");
    make_runs(&folder.0);
    let server = Server::start(&folder.0, &[], &[]);
    let runs = server.runs();
    let run = id(&runs, "run-0");
    let before = server.json(&format!("/api/scalars?run={run}"))["seq"].as_u64().unwrap();
    let mut stream = server.connect();
    stream.write_all(b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("text/event-stream")));
    assert!(lines.any(|line| line == "event: change"));
    let path = folder.0.join("run-0/metrics.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("the file");
    file.write_all(b"{\"step\":201,\"loss\":\"-Infinity\"}\n{\"step\":202,\"lo").expect("rows");
    let key = format!("\"{run}\":{}", before + 1);
    assert!(lines.any(|line| line.starts_with("data: ") && line.contains(&key)), "no event for the new row");
    let fresh = server.json(&format!("/api/scalars?run={run}&since={before}"));
    assert_eq!(fresh["series"]["loss"]["values"], serde_json::json!(["-Infinity"]), "only what is new, and whole");
    // A file that is replaced by a shorter one restarts.
    std::fs::write(&path, "{\"step\":1,\"loss\":5}\n").expect("a file");
    until("the shorter file is read", || {
        let all = server.json(&format!("/api/scalars?run={run}"));
        (all["series"]["loss"]["values"] == serde_json::json!([5.0])).then_some(())
    });
    std::fs::remove_dir_all(folder.0.join("run-0")).expect("a folder");
    until("the run is gone", || (server.json("/api/runs")["runs"].as_array()?.len() == 3).then_some(()));
    assert_eq!(server.status(&format!("/api/scalars?run={run}"), ""), 404);
}

#[test]
fn hostile_requests_get_nothing() {
    let folder = Folder::new("hostile");
    make_runs(&folder.0.join("runs"));
    write(&folder.0.join("secret.log"), "secret");
    let server = Server::start(&folder.0.join("runs"), &[], &[]);
    let runs = server.runs();
    let run = id(&runs, "run-0");
    for target in [
        "/../secret.log",
        "/..%2fsecret.log",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/../../secret.log",
        &format!("/api/log?run={run}&file=../../secret.log"),
        &format!("/api/log?run={run}&file=/etc/passwd"),
        &format!("/api/log?run={run}&file=logs/../../../secret.log"),
        &format!("/api/image?run={run}&tag=../secret&step=0"),
        "/api/log?run=99999999999999999999&file=x",
        "/api/scalars?run=-1",
        "/api/scalars",
        "/api/nothing",
        "/\u{0}",
    ] {
        let (head, body) = server.get(target, "");
        let code = head.split(' ').nth(1);
        assert!([Some("404"), Some("400")].contains(&code), "{target}: {head}");
        assert!(!String::from_utf8_lossy(&body).contains("secret") && !body.starts_with(b"root:"), "{target}");
    }
    // DNS rebinding: a page of another site whose name resolves to this machine.
    let (head, _) = server.send(b"GET /api/runs HTTP/1.1\r\nHost: evil.example:6060\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 421"), "{head}");
    for (request, code) in [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "405"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n0123456789".to_vec(), "400"),
        (b"\x16\x03\x01\x02\x00 no HTTP \r\n\r\n".to_vec(), "400"),
        ([b"GET /".to_vec(), vec![b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n".to_vec()].concat(), "431"),
    ] {
        let (head, _) = server.send(&request);
        // A connection that is reset before everything was read has no answer.
        assert!(head.is_empty() || head.contains(code), "{code}: {head}");
    }
    let (head, body) = server.send(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.contains(" 200 ") && head.contains("default-src 'none'") && body.is_empty(), "{head}");
    // More idle connections than slots: they time out, and the server continues.
    let mut idle: Vec<_> = (0..150).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(|stream| {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nX-Slow: ");
    });
    until("the server answers again", || (server.status("/", "") == 200).then_some(()));
    drop(idle);
}

#[test]
fn a_token_is_asked_for_and_not_told() {
    const TOKEN: &str = "0123456789abcdef-test";
    let folder = Folder::new("token");
    make_runs(&folder.0);
    let server = Server::start(&folder.0, &["--host", "0.0.0.0"], &[("RUSHLIGHT_UI_TOKEN", TOKEN)]);
    assert!(!server.said.contains(TOKEN), "{}", server.said);
    assert_eq!((server.status("/", ""), server.status("/api/runs", ""), server.status("/app.js", "")), (401, 401, 401));
    assert_eq!(server.status("/api/live", ""), 401);
    assert_eq!(server.status("/?token=0123456789abcdef-tesu", ""), 401);
    let (head, _) = server.get(&format!("/?token={TOKEN}"), "");
    assert!(
        head.starts_with("HTTP/1.1 303") && head.contains("HttpOnly") && head.contains("SameSite=Strict"),
        "{head}"
    );
    let cookie = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).expect("a cookie");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(server.status("/api/runs", &cookie), 200);
    assert_eq!(server.status("/api/runs", &format!("Authorization: Bearer {TOKEN}\r\n")), 200);
    // Loopback asks for a token, too. A generated one is written to a private file if standard output is no terminal.
    let home = folder.0.join("home");
    std::fs::create_dir_all(&home).expect("a folder");
    let server = Server::start_as_given(&folder.0, &[], &[("HOME", &home.display().to_string())]);
    let path = server.said.split("token in ").nth(1).and_then(|rest| rest.lines().next()).expect("a file");
    let token = std::fs::read_to_string(path).expect("the token");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).expect("a file").permissions());
    assert_eq!((mode & 0o777, token.trim().len()), (0o600, 32));
    assert!(!server.said.contains(token.trim()));
    assert_eq!((server.status("/", ""), server.status("/api/runs", "")), (401, 401));
    assert_eq!(server.status("/api/runs", &format!("Authorization: Bearer {}\r\n", token.trim())), 200);
}

#[test]
fn wrong_arguments_are_said() {
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(PROGRAM).arg("ui").args(arguments).output().expect("the program");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&["--port", "x"]).0, Some(2));
    assert_eq!(run(&["--frobnicate"]).0, Some(2));
    assert_eq!(run(&["--token=abc"]).0, Some(2));
    let (code, text) = run(&["/no/such/directory"]);
    assert!(code == Some(1) && text.contains("is neither a directory"), "{text}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let (code, text) = run(&["--port", &taken.local_addr().unwrap().port().to_string(), "."]);
    assert!(code == Some(1) && text.contains("cannot listen"), "{text}");
}

/// A file of TensorBoard's own writer, in TensorFlow 2's format.
#[test]
fn event_files_of_other_programs() {
    let Some(python) = std::env::var_os("RUSHLIGHT_TENSORBOARD_PYTHON").filter(|python| !python.is_empty()) else {
        assert!(std::env::var_os("CI").is_none(), "RUSHLIGHT_TENSORBOARD_PYTHON is not set; scripts/test sets it");
        println!(
            "skipped: RUSHLIGHT_TENSORBOARD_PYTHON is not set; scripts/tensorboard prints a Python that has TensorBoard"
        );
        return;
    };
    let folder = Folder::new("foreign");
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tensorboard/write.py");
    let output = std::process::Command::new(python).arg(script).arg(folder.0.join("tf")).output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let server = Server::start(&folder.0, &[], &[]);
    let runs = server.runs();
    let run = id(&runs, "tf");
    assert_eq!(runs["runs"][0]["problems"], serde_json::json!({}));
    let scalars = server.json(&format!("/api/scalars?run={run}"));
    assert_eq!(scalars["series"]["accuracy"]["values"], serde_json::json!([0.0, 0.125, 0.25, 0.375, 0.5]));
    assert_eq!(scalars["series"]["exact"]["values"][1], 1.0 / 3.0);
    let histograms = server.json(&format!("/api/histograms?run={run}"));
    let row = &histograms["histograms"]["weights"][4];
    assert_eq!((&row["edges"], &row["counts"]), (&serde_json::json!([-1.0, 0.0, 1.5]), &serde_json::json!([2.0, 3.0])));
    let texts = server.json(&format!("/api/texts?run={run}"));
    assert_eq!(texts["texts"]["note"][2]["text"], "step 2 ünï");
    let (head, png) = server.get(&format!("/api/image?run={run}&tag=picture&step=3"), "");
    assert!(head.contains("image/png") && png.starts_with(b"\x89PNG") && png.ends_with(b"IEND\xaeB`\x82"), "{head}");
}
