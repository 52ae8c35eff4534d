//! Kubernetes: an Indexed Job, a headless service with which its pods find each other, and their secret.

use super::{Job, REQUEUE_CODE};
use rushlight_core::{Error, Result};
use serde_json::json;

impl Job {
    pub(super) fn kubernetes(&self) -> Result<String> {
        let image = self.image.as_deref().ok_or_else(|| Error::value("a job on Kubernetes needs --image"))?;
        let name = self.name.to_ascii_lowercase().replace(['_', '.'], "-");
        let name = name.trim_matches('-');
        if name.is_empty() || name.len() > 50 || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(Error::value(format!(
                "{name:?} cannot name a service: give a --name of letters first, 50 at most"
            )));
        }
        let nodes = self.nodes;
        let mut command: Vec<String> = vec![
            "rushlight".into(),
            "run".into(),
            if self.is_elastic() {
                format!("--nnodes={}:{nodes}", self.min_nodes)
            } else {
                format!("--nnodes={nodes}")
            },
            "--node-rank=$(JOB_COMPLETION_INDEX)".into(),
            "--rdzv-backend=static".into(),
            format!("--rdzv-endpoint={name}-0.{name}:29400"),
            format!("--rdzv-id={name}"),
            format!("--nproc-per-node={}", self.gpus_per_node.max(1)),
            format!("--max-restarts={}", self.max_restarts),
        ];
        command.extend(self.module.then(|| "-m".to_owned()));
        // Kubernetes substitutes $(NAME) by variables.
        command.extend(self.program.iter().map(|word| word.replace("$(", "$$(")));
        // Every value is quoted as JSON, which YAML contains.
        let q = |text: &str| json!(text).to_string();
        let mut y = format!(
            "# Submit with: kubectl create -f FILE\napiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\nstringData:\n  secret: {}\n---\n",
            q(&crate::run::random_text()?)
        );
        y += &format!(
            "# Gives the pods names: {name}-0.{name} is the first.\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  clusterIP: None\n  \
             publishNotReadyAddresses: true\n  selector:\n    job-name: {name}\n---\n"
        );
        y += &format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n  completionMode: Indexed\n  completions: {nodes}\n  parallelism: {nodes}\n  \
             activeDeadlineSeconds: {}\n",
            self.time
        );
        if self.requeue {
            y += &format!(
                "  backoffLimit: {}\n  # A pod that was moved is no failure. Any other end, {REQUEUE_CODE} among them, starts the pod again from the last checkpoint.\n  \
                 podFailurePolicy:\n    rules:\n    - action: Ignore\n      onPodConditions:\n      - type: DisruptionTarget\n",
                nodes * (self.max_restarts + 1)
            );
        } else {
            y += "  backoffLimit: 0\n";
        }
        y += &format!(
            "  template:\n    spec:\n      restartPolicy: Never\n      subdomain: {name}\n      # SIGTERM comes this long before SIGKILL: time to save.\n      \
             terminationGracePeriodSeconds: {}\n      containers:\n      - name: ranks\n        image: {}\n        command:\n",
            self.warning,
            q(image)
        );
        for word in &command {
            y += &format!("        - {}\n", q(word));
        }
        y += &format!(
            "        env:\n        - name: RUSHLIGHT_JOB_SECRET\n          valueFrom:\n            secretKeyRef:\n              name: {name}\n              key: secret\n"
        );
        for (key, value) in &self.variables {
            y += &format!("        - name: {key}\n          value: {}\n", q(value));
        }
        let mut limits = String::new();
        if self.gpus_per_node > 0 {
            limits += &format!("            nvidia.com/gpu: {}\n", self.gpus_per_node);
        }
        if let Some(cpus) = self.cpus_per_node {
            limits += &format!("            cpu: {cpus}\n");
        }
        if let Some(memory) = &self.memory {
            limits += &format!("            memory: {}\n", q(memory));
        }
        if !limits.is_empty() {
            y += &format!("        resources:\n          limits:\n{limits}");
        }
        // Ranks of a pod share memory; the default of 64 MiB is too small.
        y += "        volumeMounts:\n        - name: shm\n          mountPath: /dev/shm\n      volumes:\n      - name: shm\n        emptyDir:\n          medium: Memory\n";
        Ok(y)
    }
}
