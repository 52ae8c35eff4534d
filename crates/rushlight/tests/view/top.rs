//! `rushlight top`, with mock vendor libraries.

use crate::support::*;
use serde_json::Value as Json;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles the mock libraries into a directory, under the names of the real ones.
fn fakes(folder: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/view/fakes");
    for (source, library) in
        [("nvml.c", "libnvidia-ml.so.1"), ("rocm_smi.c", "librocm_smi64.so.7"), ("ze_loader.c", "libze_loader.so.1")]
    {
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.join(library)).arg(sources.join(source));
        assert!(command.status().expect("cc, which Rust links with, too").success());
    }
}

fn top(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(PROGRAM);
    command.arg("top").args(arguments).env("RUSHLIGHT_MONITOR_PATH", folder).envs(variables.iter().copied());
    let output = command.stdin(Stdio::null()).output().expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn figures_of_all_vendors() {
    let folder = Folder::new("top");
    fakes(&folder.0);
    let json: Json = serde_json::from_str(&top(&folder.0, &["--once", "--json"], &[])).expect("a line of JSON");
    let gpus = json["gpus"].as_array().expect("GPUs");
    assert_eq!(gpus.len(), 4, "{json}");
    let (first, second, amd, intel) = (&gpus[0], &gpus[1], &gpus[2], &gpus[3]);
    let expected = serde_json::json!({
        "vendor": "nvidia", "index": 0, "name": "Imaginary A1", "uuid": "GPU-aa11", "utilisation_percent": 87.0,
        "memory_utilisation_percent": 42.0, "memory_used_bytes": 64u64 << 30, "memory_total_bytes": 80u64 << 30,
        "power_watts": 512.345, "power_limit_watts": 700.0, "temperature_celsius": 61.0, "clock_mhz": 1755.0,
        "clock_limit_mhz": 1980.0, "memory_clock_mhz": 2619.0,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&first[name], value, "{name}");
    }
    let processes = first["processes"].as_array().unwrap();
    assert_eq!(
        (processes.len(), &processes[2]["memory_bytes"], &processes[69]["memory_bytes"]),
        (70, &(2 << 20).into(), &Json::Null)
    );
    assert_eq!((&second["power_watts"], &second["utilisation_percent"]), (&Json::Null, &3.0.into()));
    assert_eq!(
        (&amd["vendor"], &amd["name"], &amd["clock_mhz"]),
        (&"amd".into(), &"Imaginary MI".into(), &2100.0.into())
    );
    assert_eq!((&amd["power_watts"], &amd["temperature_celsius"]), (&345.6.into(), &48.5.into()));
    assert_eq!((&intel["name"], &intel["memory_total_bytes"]), (&"Imaginary Max".into(), &(128u64 << 30).into()));
    assert_eq!((&intel["utilisation_percent"], &intel["power_watts"]), (&75.0.into(), &450.0.into()));
    assert_eq!((&intel["temperature_celsius"], &intel["clock_mhz"]), (&52.0.into(), &1550.0.into()));
    assert_eq!(
        intel["processes"][0],
        serde_json::json!({"pid": 4321, "name": intel["processes"][0]["name"], "memory_bytes": 5u64 << 30})
    );
    assert!(json["cpu"]["cores_percent"].as_array().is_some_and(|cores| !cores.is_empty()));

    // A pipe gets one plain text.
    let text = top(&folder.0, &[], &[]);
    for part in ["Imaginary A1", "87 %", "512 / 700 W", "Imaginary MI", "Imaginary Max", "64.0 / 80.0 GiB"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn a_broken_library_is_said() {
    let folder = Folder::new("top-broken");
    let source = folder.0.join("broken.c");
    write(&source, "int nvmlInit_v2(void) { return 9; }\n");
    let names = [
        "DeviceGetCount_v2",
        "DeviceGetHandleByIndex_v2",
        "DeviceGetName",
        "DeviceGetUUID",
        "DeviceGetUtilizationRates",
        "DeviceGetMemoryInfo",
        "DeviceGetPowerUsage",
        "DeviceGetTemperature",
        "DeviceGetClockInfo",
    ];
    let functions: String = names.iter().map(|name| format!("int nvml{name}(void) {{ return 1; }}\n")).collect();
    write(&source, &format!("int nvmlInit_v2(void) {{ return 9; }}\n{functions}"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(folder.0.join("libnvidia-ml.so.1")).arg(&source);
    assert!(cc.status().expect("cc").success());
    let text = top(&folder.0, &["--once"], &[]);
    assert!(text.contains("! NVML: nvmlInit failed with code 9: the driver is not loaded"), "{text}");
}

/// On a terminal, which `script` provides, it ends with `q` and restores the screen.
#[test]
fn a_terminal_is_put_back() {
    if Command::new("script").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "script (bsdutils) is missing");
        println!("skipped: script (Debian: bsdutils) gives programs a terminal, and is not installed");
        return;
    }
    let folder = Folder::new("top-terminal");
    fakes(&folder.0);
    let command = format!("stty rows 50 cols 100; {PROGRAM} top --interval 0.2; echo code $?; stty -a");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).env("RUSHLIGHT_MONITOR_PATH", &folder.0);
    let mut child = script.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script");
    let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = text.clone();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0u8; 4096];
        while let Ok(n @ 1..) = std::io::Read::read(&mut output, &mut buffer) {
            *seen.lock().unwrap() += &String::from_utf8_lossy(&buffer[..n]);
        }
    });
    // Two frames show the utilisation of the time between.
    until("it draws", || (text.lock().unwrap().matches("Imaginary A1").count() > 1).then_some(()));
    std::io::Write::write_all(&mut input, b"q").expect("a key");
    until("it ends", || child.try_wait().expect("a state"));
    reader.join().expect("a reader");
    let text = text.lock().unwrap().clone();
    assert!(text.contains("\x1b[?1049h") && text.contains("\x1b[?1049l") && text.contains("\x1b[?25h"), "{text:?}");
    assert!(text.contains("code 0"), "{text:?}");
    let settings = text.rsplit("code 0").next().unwrap_or_default();
    for setting in ["icanon", "echo", "isig"] {
        assert!(settings.split_whitespace().any(|word| word == setting), "{setting}: {settings:?}");
    }
}

/// Ranks that a launcher has started answer for their nodes: all of them are on this one here.
#[test]
fn ranks_gather_their_nodes() {
    let folder = Folder::new("top-ranks");
    fakes(&folder.0);
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--nproc-per-node=3", "--no-python", PROGRAM, "top", "--all-ranks", "--once", "--json"]);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["SLURM_", "PMI_", "OMPI_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("RUSHLIGHT_MONITOR_PATH", &folder.0).env("HOME", &folder.0).stdin(Stdio::null());
    let output = command.output().expect("the launcher");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out} {err}");
    let lines: Vec<Json> = out.lines().filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok()).collect();
    assert_eq!(lines.len(), 1, "one node: {out} {err}");
    assert_eq!(lines[0]["gpus"].as_array().map(Vec::len), Some(4));
}

/// The nodes of a job on a real Slurm whose two nodes are this machine under other names.
#[test]
fn nodes_of_a_slurm_job() {
    const JOB: &str = r#"
        id=$(sbatch --parsable -N2 --output=/dev/null --wrap 'sleep 300')
        for i in $(seq 600); do [ "$(squeue -h -j $id -o %T)" = RUNNING ] && break; sleep 0.1; done
        timeout 100 "$0" top --job $id --once --json && timeout 100 "$0" top --job $id --once
        echo "code $?"
        timeout 100 "$0" top --job 99999 --once; echo "unknown: $?"
        for i in $(seq 600); do [ "$(squeue -h -s | grep -vc batch)" = 0 ] && break; sleep 0.1; done
        echo "steps left: $(squeue -h -s | grep -vc batch)"
        scancel $id
    "#;
    let slurm = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm");
    let folder = Folder::new("top-slurm");
    fakes(&folder.0);
    let mut command = Command::new("timeout");
    command.arg("170").arg(slurm).args(["bash", "-c", JOB, PROGRAM]).env("RUSHLIGHT_MONITOR_PATH", &folder.0);
    let output = command.stdin(Stdio::null()).output().expect("timeout");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) {
        assert!(std::env::var_os("CI").is_none(), "no Slurm: {err}");
        println!("skipped: no Slurm: {err}");
        return;
    }
    let hosts: Vec<String> = out
        .lines()
        .filter_map(|line| serde_json::from_str::<Json>(line).ok())
        .filter_map(|json| Some(json["host"].as_str()?.to_owned()))
        .collect();
    assert_eq!(hosts, ["n1", "n2"], "{out} {err}");
    assert!(out.contains("code 0") && out.contains("unknown: 1") && out.contains("steps left: 0"), "{out} {err}");
    assert_eq!(out.matches("Imaginary Max").count(), 4, "twice on each node: {out}");
}
