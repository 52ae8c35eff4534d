//! Batch scripts for Slurm, PBS and Flux.

use super::{Job, REQUEUE_CODE};
use std::path::Path;

/// Quotes a word for the shell.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Reads the exit code of a command, or the one that the launchers wrote.
const READ_CODE: &str =
    "code=$?\nif [ -s \"$code_file\" ]; then code=$(cat \"$code_file\"); rm -f \"$code_file\"; fi\n";

/// `HH:MM:SS`; hours may exceed 24.
fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Job {
    /// Whether the job may run on fewer nodes than it requests.
    pub(super) fn is_elastic(&self) -> bool {
        self.min_nodes < self.nodes
    }

    /// Whether the program is a file that can be copied to the nodes: Python scripts depend on other files.
    pub(super) fn stages_program(&self) -> bool {
        self.stage
            && !self.module
            && self.program[0].contains('/')
            && Path::new(&self.program[0]).extension().is_none_or(|e| e != "py")
    }

    /// GPUs of a node as the scheduler counts them.
    fn cards(&self) -> usize {
        match self.machine {
            Some(machine) if machine.cards != machine.gpus => self.gpus_per_node.div_ceil(machine.gpus / machine.cards),
            _ => self.gpus_per_node,
        }
    }

    /// Processors per node to request: the user's number, or the machine's.
    fn processors(&self) -> Option<usize> {
        let machines = || {
            let machine = self.machine.filter(|machine| machine.cpus > 0)?;
            Some(if machine.cpus_by_gpu { machine.cpus * self.cards().max(1) } else { machine.cpus })
        };
        self.cpus_per_node.or_else(machines)
    }

    /// Comments for the script's reader.
    fn header(&self, submit: &str) -> String {
        let ranks = self.gpus_per_node.max(1);
        let stays = if self.requeue {
            format!(
                "# A job that receives the warning signal saves its state, exits with {REQUEUE_CODE} and continues in another job.\n"
            )
        } else {
            String::new()
        };
        format!(
            "# {}: {} nodes, {ranks} ranks on each. Written by `rushlight job`; submit it by `{submit}`.\n{stays}",
            self.name, self.nodes
        )
    }

    /// Modules and variables.
    fn preamble(&self) -> String {
        let mut text = String::new();
        for module in &self.modules {
            text += &format!("module load {}\n", quote(module));
        }
        for (name, value) in &self.variables {
            text += &format!("export {name}={}\n", quote(value));
        }
        if text.is_empty() { text } else { text + "\n" }
    }

    /// The options of `rushlight run`, then the program.
    fn run_line(&self, launcher: &str, program: &str, options: &[&str]) -> String {
        let ranks = self.gpus_per_node.max(1);
        let mut words = vec![launcher.to_owned(), format!("--nproc-per-node={ranks}")];
        words.push(format!("--max-restarts={}", self.max_restarts));
        words.extend(self.is_elastic().then(|| format!("--nnodes={}:{}", self.min_nodes, self.nodes)));
        words.push("--exit-code-file=\"$code_file\"".into());
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.extend(self.module.then(|| "-m".to_owned()));
        words.push(program.to_owned());
        words.extend(self.program[1..].iter().map(|word| quote(word)));
        words.join(" ")
    }

    fn local_folder(&self) -> &str {
        self.machine.map_or("/tmp", |machine| machine.local_folder)
    }

    /// Copies the job's files to each node's local disk with `copy`. Returns the commands, the
    /// launcher and the program.
    fn staging(&self, job: &str, copy: &str) -> (String, String, String) {
        let program = quote(&self.program[0]);
        let run = |launcher: &str| format!("{launcher} run");
        if !self.stage && self.wheel.is_none() {
            return (String::new(), run("rushlight"), program);
        }
        let mut s = String::from(
            "# Programs are read from each node's own disk: one copy instead of one read for each rank.\n",
        );
        s += "# The folder's name cannot be foreseen, and it is this user's own on every node: nobody else can swap the files.\n";
        s += &format!(
            "local_folder=\"{}/rushlight-{job}-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\"\n",
            self.local_folder()
        );
        s += "own='umask 077; mkdir \"$1\" 2> /dev/null; [ -O \"$1\" ] && [ ! -L \"$1\" ] && chmod 700 \"$1\"'\n\
              if ! \"${step[@]}\" sh -c \"$own\" sh \"$local_folder\"; then\n    \
              echo \"rushlight: $local_folder cannot be made on every node, or is not this user's own\" >&2\n    exit 1\nfi\n";
        if let Some(wheel) = &self.wheel {
            // A wheel is an archive: unpacked, it is a package.
            s += &format!("{copy} {} \"$local_folder/wheel.zip\"\n", quote(wheel));
            s += "\"${step[@]}\" python3 -m zipfile -e \"$local_folder/wheel.zip\" \"$local_folder/python\"\n";
            s += "export PYTHONPATH=\"$local_folder/python${PYTHONPATH:+:$PYTHONPATH}\"\n";
            return (s, "python3 -m rushlight.run".into(), program);
        }
        s += &format!("{copy} \"$(command -v rushlight)\" \"$local_folder/rushlight\"\n");
        let launcher = run("\"$local_folder/rushlight\"");
        if self.stages_program() {
            s += &format!("{copy} {program} \"$local_folder/program\"\n");
            return (s, launcher, "\"$local_folder/program\"".into());
        }
        (s, launcher, program)
    }

    /// Names the file for the job's exit code.
    fn code_file(&self, job: &str, starter: &str) -> String {
        format!(
            "# {starter} may hide the job's exit code, behind a lost launcher or a signal: it is written to a file.\n\
             code_file=$PWD/{}-{job}.code\nrm -f \"$code_file\"\n",
            quote(&self.name)
        )
    }

    /// Removes the copies.
    fn unstaging(&self) -> &str {
        match (self.stage || self.wheel.is_some(), self.is_elastic()) {
            (false, _) => "",
            (true, false) => "\"${step[@]}\" rm -rf \"$local_folder\"\n",
            (true, true) => "\"${step[@]}\" rm -rf \"$local_folder\" || rm -rf \"$local_folder\"\n",
        }
    }

    pub(super) fn slurm(&self) -> String {
        let mut s = format!("#!/bin/bash\n{}", self.header("sbatch FILE"));
        let mut directive = |text: String| s += &format!("#SBATCH {text}\n");
        directive(format!("--job-name={}", self.name));
        directive(format!("--nodes={}", self.nodes));
        directive("--ntasks-per-node=1".into());
        if self.gpus_per_node > 0 {
            directive(format!("--gpus-per-node={}", self.cards()));
        }
        if let Some(cpus) = self.processors() {
            directive(format!("--cpus-per-task={cpus}"));
        }
        if let Some(memory) = &self.memory {
            directive(format!("--mem={memory}"));
        }
        directive(format!("--time={}", clock(self.time)));
        if let Some(account) = &self.account {
            directive(format!("--account={account}"));
        }
        if let Some(queue) = &self.queue {
            directive(format!("--partition={queue}"));
        }
        directive("--output=%x-%j.out".into());
        directive(format!("--signal=USR1@{}", self.warning));
        if self.is_elastic() {
            directive("--no-kill".into());
        }
        if self.requeue {
            directive("--requeue".into());
            directive("--open-mode=append".into());
        } else {
            directive("--no-requeue".into());
        }
        for text in self.machine.map_or(&[][..], |machine| machine.directives) {
            directive((*text).into());
        }
        s += &format!(
            "# --ntasks-per-node: one launcher on each node starts its ranks. --signal: ranks hear of the limit {} s before it.\n",
            self.warning
        );
        if self.is_elastic() {
            s += "# --no-kill: the job continues without a lost node, unless it is the first, where the launchers meet.\n";
        }
        s += "\nset -u\n# With --export=NONE the steps would start without the variables below.\nunset SLURM_EXPORT_ENV\n";
        s += &self.preamble();
        s += "nodes=$SLURM_JOB_NUM_NODES\nstep=(srun --nodes=\"$nodes\" --ntasks=\"$nodes\" --ntasks-per-node=1)\n";
        s += "# Launchers divide the processors among their ranks themselves, and continue without a lost node.\n";
        s += "launch=(\"${step[@]}\" --cpu-bind=none --kill-on-bad-exit=0)\n";
        s += "if [ -n \"${SLURM_CPUS_PER_TASK:-}\" ]; then launch+=(--cpus-per-task=\"$SLURM_CPUS_PER_TASK\"); fi\n\n";
        let (staging, launcher, program) = self.staging("$SLURM_JOB_ID", "sbcast --force");
        s += &staging;
        if self.is_elastic() {
            s += "launch+=(--no-kill)\n";
        }
        s += &self.code_file("$SLURM_JOB_ID", "srun");
        s += &format!("\"${{launch[@]}}\" {}\n{READ_CODE}", self.run_line(&launcher, &program, &[]));
        if self.is_elastic() {
            s += "# A step on all nodes would wait for a lost one.\nstep=(timeout 15 \"${step[@]}\")\n";
        }
        s += self.unstaging();
        if self.requeue {
            s += &format!(
                "\n# {REQUEUE_CODE}: the program has saved its state and requests to continue in another job.\n"
            );
            s += &format!(
                "if [ \"$code\" -eq {REQUEUE_CODE} ]; then\n    scontrol requeue \"$SLURM_JOB_ID\" && exit 0\nfi\n"
            );
        }
        s + "exit \"$code\"\n"
    }

    pub(super) fn pbs(&self) -> String {
        let mut s = format!("#!/bin/bash -l\n{}", self.header("qsub FILE"));
        let mut directive = |text: String| s += &format!("#PBS {text}\n");
        directive(format!("-N {}", self.name.chars().take(15).collect::<String>()));
        let mut select = format!("-l select={}", self.nodes);
        // A known machine gives whole nodes.
        if self.machine.is_none() {
            if let Some(cpus) = self.processors() {
                select += &format!(":ncpus={cpus}");
            }
            if self.gpus_per_node > 0 {
                select += &format!(":ngpus={}", self.gpus_per_node);
            }
            if let Some(memory) = &self.memory {
                select += &format!(":mem={memory}");
            }
        }
        directive(select);
        directive("-l place=scatter".into());
        directive(format!("-l walltime={}", clock(self.time)));
        if let Some(account) = &self.account {
            directive(format!("-A {account}"));
        }
        if let Some(queue) = &self.queue {
            directive(format!("-q {queue}"));
        }
        directive("-j oe".into());
        directive(format!("-r {}", if self.requeue { 'y' } else { 'n' }));
        for text in self.machine.map_or(&[][..], |machine| machine.directives) {
            directive((*text).into());
        }
        s += "\nset -u\ncd \"$PBS_O_WORKDIR\" || exit 1\n";
        s += &self.preamble();
        s += "nodes=$(sort -u \"$PBS_NODEFILE\" | wc -l)\n";
        // By default PALS binds each launcher to one core.
        let binding = if self.machine.is_some() { " --cpu-bind none" } else { "" };
        s +=
            &format!("# One launcher on each node starts its ranks.\nstep=(mpiexec -n \"$nodes\" -ppn 1{binding})\n\n");
        let (staging, launcher, program) = self.staging("$PBS_JOBID", "\"${step[@]}\" cp");
        s += &staging;
        let line = self.run_line(&launcher, &program, &[]);
        s += &self.code_file("$PBS_JOBID", "mpiexec");
        let (alarm, warning) = (self.time - self.warning, self.warning);
        s += &format!(
            "# PBS gives no notice of the limit: `timeout` tells the ranks {warning} s before it, in time to save their state.\n"
        );
        s += &format!(
            "timeout --foreground --preserve-status --signal=USR1 {alarm} \"${{step[@]}}\" {line}\n{READ_CODE}"
        );
        s += self.unstaging();
        s += &self.resubmit("qsub");
        s + "exit \"$code\"\n"
    }

    pub(super) fn flux(&self) -> String {
        let mut s = format!("#!/bin/bash\n{}", self.header("flux batch FILE"));
        let mut directive = |text: String| s += &format!("#flux: {text}\n");
        directive(format!("--job-name={}", self.name));
        directive(format!("--nodes={}", self.nodes));
        directive("--exclusive".into());
        directive(format!("--time-limit={}s", self.time));
        if let Some(account) = &self.account {
            directive(format!("--bank={account}"));
        }
        if let Some(queue) = &self.queue {
            directive(format!("--queue={queue}"));
        }
        directive(format!("--output={}-{{{{id}}}}.out", self.name));
        s += "\nset -u\n";
        s += &self.preamble();
        s += &format!("nodes={}\n", self.nodes);
        s += "# One launcher on each node starts its ranks.\n";
        s += "options=(--nodes=\"$nodes\" --ntasks=\"$nodes\" --exclusive -o cpu-affinity=off -o gpu-affinity=off)\n";
        s += "step=(flux run \"${options[@]}\")\n";
        s += "# This script runs on the first node, where the launchers meet.\nfirst=$(hostname)\n\n";
        let (staging, launcher, program) = self.staging("$FLUX_ENCLOSING_ID", "\"${step[@]}\" cp");
        s += &staging;
        let options = ["--rdzv-endpoint=\"$first\"", "--rdzv-id=\"$FLUX_ENCLOSING_ID\""];
        let options =
            if self.is_elastic() { options.to_vec() } else { [&["--nnodes=\"$nodes\""], &options[..]].concat() };
        s += &self.code_file("$FLUX_ENCLOSING_ID", "flux");
        let line = self.run_line(&launcher, &program, &options);
        s += &format!("ranks=$(flux submit \"${{options[@]}}\" {line})\n");
        let (alarm, warning) = (self.time - self.warning, self.warning);
        s += &format!("# Ranks hear of the time limit {warning} s before it, in time to save their state.\n");
        s += &format!(
            "( trap 'kill \"$!\"; exit' TERM; sleep {alarm} & wait \"$!\"; flux job kill -s SIGUSR1 \"$ranks\" ) &\nalarm=$!\n"
        );
        s += &format!("flux job attach \"$ranks\"\n{READ_CODE}kill \"$alarm\" 2> /dev/null\n");
        s += self.unstaging();
        s += &self.resubmit("flux --parent batch");
        s + "exit \"$code\"\n"
    }

    /// Submits this script again, for schedulers that do not requeue on a job's request.
    fn resubmit(&self, command: &str) -> String {
        if !self.requeue {
            return String::new();
        }
        format!(
            "\n# {REQUEUE_CODE}: the program has saved its state and requests to continue in another job.\n\
             if [ \"$code\" -eq {REQUEUE_CODE} ]; then\n    {command} \"$0\" && exit 0\nfi\n"
        )
    }
}
