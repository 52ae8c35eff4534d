"""What MLflow's own client finds in a file store, as JSON: read.py FOLDER EXPERIMENT."""

import json
import os
import sys

# From version 3 on the client asks for this before it reads a file store.
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

from mlflow.tracking import MlflowClient

client = MlflowClient("file://" + os.path.abspath(sys.argv[1]))
experiment = client.get_experiment_by_name(sys.argv[2])
found = []
for run in client.search_runs([experiment.experiment_id]):
    history = {name: [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
    artifacts = run.info.artifact_uri.startswith("file://")
    found.append({
        "id": run.info.run_id, "name": run.info.run_name, "status": run.info.status, "params": run.data.params, "metrics": history,
        "artifacts": artifacts, "ended": run.info.end_time is not None and run.info.end_time >= run.info.start_time,
    })
# A run of the client's own must fit beside ours.
own = client.create_run(experiment.experiment_id)
client.log_metric(own.info.run_id, "loss", 1.0, step=1)
json.dump({"runs": found, "after": len(client.search_runs([experiment.experiment_id]))}, sys.stdout)
