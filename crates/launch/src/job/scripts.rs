//! Batch scripts for Slurm, PBS and Flux.

use super::{Job, REQUEUE_CODE};
use std::path::Path;

/// A word as a shell reads it back.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// `HH:MM:SS`, hours as many as there are.
fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Job {
    /// Whether the program is a file that can be copied to the nodes: Python scripts have others beside them.
    pub(super) fn stages_program(&self) -> bool {
        self.stage && self.program[0].contains('/') && Path::new(&self.program[0]).extension().is_none_or(|e| e != "py")
    }

    /// GPUs of a node as the scheduler counts them.
    fn cards(&self) -> usize {
        match self.machine {
            Some(machine) if machine.cards != machine.gpus => self.gpus_per_node.div_ceil(machine.gpus / machine.cards),
            _ => self.gpus_per_node,
        }
    }

    fn processors(&self) -> Option<usize> {
        let by_gpu = self.machine.is_some_and(|machine| machine.cpus_by_gpu);
        self.cpus_per_node.map(|n| if by_gpu { n * self.cards().max(1) } else { n })
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
        let mut words = vec![launcher.to_owned(), "run".into(), format!("--nproc-per-node={ranks}")];
        words.push(format!("--max-restarts={}", self.max_restarts));
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.push(program.to_owned());
        words.extend(self.program[1..].iter().map(|word| quote(word)));
        words.join(" ")
    }

    fn local_folder(&self) -> &str {
        self.machine.map_or("/tmp", |machine| machine.local_folder)
    }

    pub(super) fn slurm(&self) -> String {
        let mut s = String::from("#!/bin/bash\n");
        let mut directive = |text: String| s += &format!("#SBATCH {text}\n");
        directive(format!("--job-name={}", self.name));
        directive(format!("--nodes={}", self.nodes));
        // One launcher on each node; it starts a rank for each GPU.
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
        // Ranks hear of the limit in time to save their state.
        directive(format!("--signal=USR1@{}", self.warning));
        if self.requeue {
            directive("--requeue".into());
            directive("--open-mode=append".into());
        } else {
            directive("--no-requeue".into());
        }
        for text in self.machine.map_or(&[][..], |machine| machine.directives) {
            directive((*text).into());
        }
        s += "\nset -u\n# With --export=NONE the steps would start without the variables below.\nunset SLURM_EXPORT_ENV\n";
        s += &self.preamble();
        s += "nodes=$SLURM_JOB_NUM_NODES\nstep=(srun --nodes=\"$nodes\" --ntasks=\"$nodes\" --ntasks-per-node=1)\n";
        s += "# Launchers divide the processors among their ranks themselves, and go on without a lost node.\n";
        s += "launch=(\"${step[@]}\" --cpu-bind=none --kill-on-bad-exit=0)\n";
        s += "if [ -n \"${SLURM_CPUS_PER_TASK:-}\" ]; then launch+=(--cpus-per-task=\"$SLURM_CPUS_PER_TASK\"); fi\n\n";
        let (mut launcher, mut program) = ("rushlight".to_owned(), quote(&self.program[0]));
        if self.stage {
            let folder = self.local_folder();
            s += "# Programs are read from each node's own disk: one copy instead of one read for each rank.\n";
            s += &format!("local_folder=\"{folder}/rushlight-$SLURM_JOB_ID\"\n");
            s += "\"${step[@]}\" mkdir -p \"$local_folder\"\n";
            s += "sbcast --force \"$(command -v rushlight)\" \"$local_folder/rushlight\"\n";
            launcher = "\"$local_folder/rushlight\"".into();
            if self.stages_program() {
                s += &format!("sbcast --force {program} \"$local_folder/program\"\n");
                program = "\"$local_folder/program\"".into();
            }
        }
        s += &format!("\"${{launch[@]}}\" {}\ncode=$?\n", self.run_line(&launcher, &program, &[]));
        if self.stage {
            s += "\"${step[@]}\" rm -rf \"$local_folder\"\n";
        }
        if self.requeue {
            s += &format!("\n# {REQUEUE_CODE}: the program has saved its state and asks to go on in another job.\n");
            s += &format!(
                "if [ \"$code\" -eq {REQUEUE_CODE} ]; then\n    scontrol requeue \"$SLURM_JOB_ID\" && exit 0\nfi\n"
            );
        }
        s + "exit \"$code\"\n"
    }

    pub(super) fn pbs(&self) -> String {
        let mut s = String::from("#!/bin/bash -l\n");
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
        s += "step=(mpiexec -n \"$nodes\" -ppn 1)\n\n";
        let (mut launcher, mut program) = ("rushlight".to_owned(), quote(&self.program[0]));
        if self.stage {
            s += "# Programs are read from each node's own disk: one copy instead of one read for each rank.\n";
            s += &format!("local_folder=\"{}/rushlight-$PBS_JOBID\"\n", self.local_folder());
            s += "\"${step[@]}\" mkdir -p \"$local_folder\"\n";
            s += "\"${step[@]}\" cp \"$(command -v rushlight)\" \"$local_folder/rushlight\"\n";
            launcher = "\"$local_folder/rushlight\"".into();
            if self.stages_program() {
                s += &format!("\"${{step[@]}}\" cp {program} \"$local_folder/program\"\n");
                program = "\"$local_folder/program\"".into();
            }
        }
        s += &format!("\"${{step[@]}}\" {} &\nranks=$!\n", self.run_line(&launcher, &program, &[]));
        s += "# PBS gives no notice of the limit: this does, in time for ranks to save their state.\n";
        let alarm = self.time - self.warning;
        s += &format!("( sleep {alarm}; kill -USR1 \"$ranks\" ) 2> /dev/null &\nalarm=$!\n");
        s += "wait \"$ranks\"\ncode=$?\nkill \"$alarm\" 2> /dev/null\n";
        if self.stage {
            s += "\"${step[@]}\" rm -rf \"$local_folder\"\n";
        }
        s += &self.resubmit("qsub");
        s + "exit \"$code\"\n"
    }

    pub(super) fn flux(&self) -> String {
        let mut s = String::from("#!/bin/bash\n");
        let mut directive = |text: String| s += &format!("#flux: {text}\n");
        directive(format!("--job-name={}", self.name));
        directive(format!("--nodes={}", self.nodes));
        directive("--exclusive".into());
        directive(format!("--time-limit={}s", self.time));
        directive(format!("--signal=SIGUSR1@{}s", self.warning));
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
        s += "step=(flux run --nodes=\"$nodes\" --ntasks=\"$nodes\" --exclusive -o cpu-affinity=off -o gpu-affinity=off)\n";
        s += "# This script runs on the first node, where the launchers meet.\nfirst=$(hostname)\n\n";
        let (mut launcher, mut program) = ("rushlight".to_owned(), quote(&self.program[0]));
        if self.stage {
            s += "# Programs are read from each node's own disk: one copy instead of one read for each rank.\n";
            s += &format!("local_folder=\"{}/rushlight-$FLUX_ENCLOSING_ID\"\n", self.local_folder());
            s += "\"${step[@]}\" mkdir -p \"$local_folder\"\n";
            s += "\"${step[@]}\" cp \"$(command -v rushlight)\" \"$local_folder/rushlight\"\n";
            launcher = "\"$local_folder/rushlight\"".into();
            if self.stages_program() {
                s += &format!("\"${{step[@]}}\" cp {program} \"$local_folder/program\"\n");
                program = "\"$local_folder/program\"".into();
            }
        }
        let options = ["--nnodes=\"$nodes\"", "--rdzv-endpoint=\"$first\"", "--rdzv-id=\"$FLUX_ENCLOSING_ID\""];
        s += &format!("\"${{step[@]}}\" {}\ncode=$?\n", self.run_line(&launcher, &program, &options));
        if self.stage {
            s += "\"${step[@]}\" rm -rf \"$local_folder\"\n";
        }
        s += &self.resubmit("flux --parent batch");
        s + "exit \"$code\"\n"
    }

    /// Submits this script again where a scheduler does not requeue at a job's own wish.
    fn resubmit(&self, command: &str) -> String {
        if !self.requeue {
            return String::new();
        }
        format!(
            "\n# {REQUEUE_CODE}: the program has saved its state and asks to go on in another job.\n\
             if [ \"$code\" -eq {REQUEUE_CODE} ]; then\n    {command} \"$0\" && exit 0\nfi\n"
        )
    }
}
