use super::*;
use std::process::Command as Process;

fn job(line: &[&str]) -> Result<Job> {
    read(&command().try_get_matches_from(std::iter::once(&"job").chain(line)).expect("options that are known"))
}

fn script(line: &[&str]) -> String {
    job(line).and_then(|job| job.script()).unwrap()
}

/// Has bash read a script without running it.
fn check(text: &str) {
    let mut bash = Process::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
    bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn scripts_are_valid_for_every_scheduler_and_machine() {
    let program = ["./train", "--text", "it's $HOME; `x`", "-m"];
    for scheduler in ["slurm", "pbs", "flux"] {
        let extras = [
            &[][..],
            &["--no-stage", "--no-requeue"],
            &["--load", "a/1", "--env", "A=b c", "--memory", "8G"],
            &["--nodes", "4", "--min-nodes", "2", "--wheel", "a b.whl"],
        ];
        for extra in extras {
            let line: Vec<&str> = [&["--scheduler", scheduler], extra, &program].concat();
            let text = script(&line);
            check(&text);
            assert!(text.contains(r"'it'\''s $HOME; `x`' -m"), "{text}");
        }
    }
    for machine in MACHINES {
        let text = script(&["--machine", machine.name, "--nodes", "2", "--account", "p", "train.py"]);
        check(&text);
        assert!(text.contains(&format!("--nproc-per-node={}", machine.gpus)), "{text}");
    }
}

#[test]
fn slurm_directives() {
    let text = script(&["--machine", "frontier", "--nodes", "4", "--time", "1-02:03", "--account", "ABC", "./train"]);
    for line in [
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --cpus-per-task=56",
        "#SBATCH --time=26:03:00",
        "#SBATCH --account=ABC",
        "#SBATCH --partition=batch",
        "#SBATCH --signal=USR1@120",
        "#SBATCH --requeue",
        "export NCCL_SOCKET_IFNAME=hsn0",
        "sbcast --force ./train \"$local_folder/program\"",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}:\n{text}");
    }
    // Directives end at the first command.
    let last = text.lines().position(|l| !l.starts_with('#')).expect("a command");
    assert!(!text.lines().skip(last).any(|l| l.starts_with("#SBATCH")));
    let elastic = script(&["--scheduler", "slurm", "--nodes", "4", "--min-nodes", "2", "-m", "pkg.train"]);
    assert!(elastic.contains("#SBATCH --no-kill\n") && elastic.contains("--nnodes=2:4 --exit-code-file="), "{elastic}");
    assert!(!text.contains("no-kill"));
    let wheel = script(&["--scheduler", "slurm", "--wheel", "r.whl", "train.py"]);
    assert!(wheel.contains("sbcast --force r.whl") && wheel.contains("python3 -m rushlight.run --nproc"), "{wheel}");
    assert!(!script(&["--scheduler", "slurm", "--no-requeue", "./t"]).contains("scontrol"));
    // Devices are tiles on Intel's GPUs, two to a card.
    assert!(script(&["--machine", "dawn", "./t"]).contains("#SBATCH --gpus-per-node=4\n"));
    assert!(script(&["--machine", "alliance", "--gpus-per-node", "4", "./t"]).contains("--cpus-per-task=24\n"));
    assert!(script(&["--machine", "alliance", "--cpus-per-node", "9", "./t"]).contains("--cpus-per-task=9\n"));
}

#[test]
fn pbs_directives() {
    let text = script(&["--machine", "aurora", "--nodes", "2", "--time", "30", "--account", "p", "./train"]);
    for line in ["#PBS -l select=2", "#PBS -l walltime=00:30:00", "#PBS -l filesystems=home:flare", "#PBS -q debug"] {
        assert!(text.lines().any(|l| l == line), "{line}:\n{text}");
    }
    assert!(text.contains("--signal=USR1 1680 "), "{text}");
}

#[test]
fn kubernetes_documents() {
    let line = [
        "--scheduler",
        "kubernetes",
        "--nodes",
        "2",
        "--gpus-per-node",
        "4",
        "--image",
        "i:1",
        "--name",
        "My_job",
        "train",
        "a\"b",
        "$(HOME)",
    ];
    let text = script(&line);
    assert_eq!(text.matches("\n---\n").count(), 2);
    for part in [
        "completionMode: Indexed",
        "completions: 2",
        "nvidia.com/gpu: 4",
        "- \"--rdzv-endpoint=my-job-0.my-job:29400\"",
        "- \"a\\\"b\"",
        "- \"$$(HOME)\"",
        "backoffLimit: 8",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(
        job(&["--scheduler", "kubernetes", "train"]).unwrap().script().unwrap_err().to_string().contains("--image")
    );
}

#[test]
fn mistakes_are_named() {
    for (line, part) in [
        (&["train"][..], "--scheduler"),
        (&["--scheduler", "pbs", "--frobnicate", "train"], "no option --frobnicate"),
        (&["--scheduler", "pbs", "--machine", "frontier", "t"], "frontier"),
        (&["--scheduler", "slurm", "--time", "1:99", "t"], "1:99"),
        (&["--scheduler", "slurm", "--time", "1", "t"], "--warning"),
        (&["--scheduler", "slurm", "--env", "A", "t"], "--env A"),
        (&["--scheduler", "slurm", "--nodes", "0", "t"], "--nodes 0"),
        (&["--scheduler", "slurm", "--nodes", "2", "--min-nodes", "3", "t"], "--min-nodes 3"),
        (&["--scheduler", "kubernetes", "--wheel", "w", "t"], "--wheel"),
        (&["--scheduler", "slurm", "--name", "a b", "t"], "a b"),
        (&["--scheduler", "slurm", "--account", "a\n#SBATCH x", "t"], "directive"),
    ] {
        let error = job(line).unwrap_err().to_string();
        assert!(error.contains(part), "{line:?}: {error}");
    }
}

#[test]
fn times() {
    for (text, seconds) in
        [("90", 5400), ("01:30", 5400), ("01:30:05", 5405), ("2-00:00", 172800), ("100:00:00", 360000)]
    {
        assert_eq!(time(text).unwrap(), seconds);
    }
    for bad in ["", "x", "0", "1:60", "-1", "1-5", "99999999999999999999-00:00"] {
        assert!(time(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_manifest_with_a_secret_is_its_owners_alone() {
    let path = std::env::temp_dir().join(format!("rushlight-manifest-{}", std::process::id()));
    std::fs::write(&path, "old").unwrap();
    write_script(&path, "secret", true).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret");
    std::fs::remove_file(&path).unwrap();
}

/// The commands of a batch script that make the folder for the staged programs: another user's folder, or a link, is
/// refused, and the name cannot be foreseen.
#[test]
fn staged_programs_are_in_a_folder_of_the_user_alone() {
    let script = script(&["--scheduler", "slurm", "--nodes", "2", "./train"]);
    let from = script.find("local_folder=").unwrap();
    let part = &script[from..from + script[from..].find("\nfi\n").unwrap() + 4];
    assert!(!script.contains("mkdir -p"), "{script}");
    let run = |before: &str, after: &str| {
        // One node, whose step is the shell itself; the folder's name is fixed to plant another there.
        let text = format!("set -u\nSLURM_JOB_ID=7\nstep=()\n{before}\n{part}{after}\n");
        std::process::Command::new("bash").args(["-c", &text]).output().unwrap()
    };
    let made = run("", "stat -c %a \"$local_folder\"; echo \"$local_folder\"; rmdir \"$local_folder\"");
    let told = String::from_utf8_lossy(&made.stdout).into_owned();
    let (mode, name) = told.trim().split_once('\n').unwrap();
    assert_eq!(mode, "700");
    assert!(name.starts_with("/tmp/rushlight-7-") && name.len() > 40, "{name}");
    // A planted link to a folder of one's own.
    let planted = format!(
        "od() {{ echo planted{0}; }}\nmkdir -p /tmp/rushlight-own-{0}\nln -sfn /tmp/rushlight-own-{0} /tmp/rushlight-7-planted{0}",
        std::process::id()
    );
    let refused = run(&planted, "");
    let _ = std::fs::remove_file(format!("/tmp/rushlight-7-planted{}", std::process::id()));
    let _ = std::fs::remove_dir(format!("/tmp/rushlight-own-{}", std::process::id()));
    assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
}
