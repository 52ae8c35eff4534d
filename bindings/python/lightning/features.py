"""Features of Lightning, each as a small run whose outcome is numbers and texts.

    python features.py OUTCOMES.json [NAME ...]

The same files run over PyTorch and over Rushlight, under ``lightning`` 2 and ``pytorch_lightning`` 1.9; ``table.py`` compares the outcomes.
"""

import json
import logging
import sys
import traceback

import features_around
import features_callbacks
import features_loop
import torch
from small_model import FEATURES, pl

# Each registers its features when it is imported.
__all__ = ["features_around", "features_callbacks", "features_loop"]


def main(target, names):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning").setLevel(logging.ERROR)
    outcomes = {}
    for name in names or FEATURES:
        try:
            outcomes[name] = {"outcome": FEATURES[name]()}
        except (Exception, SystemExit) as error:
            outcomes[name] = {"error": f"{type(error).__name__}: {error}"[:300], "trace": traceback.format_exc()[-2000:]}
        print(name, "failed: " + outcomes[name]["error"] if "error" in outcomes[name] else "done", flush=True)
    with open(target, "w") as file:
        json.dump({"version": pl.__version__, "torch": torch.__version__, "features": outcomes}, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
