"""A rank of ``elastic_launch``: ``python -m rushlight.distributed.elastic._rank FOLDER`` calls the function stored there and stores its result."""

import os
import pickle
import sys
from multiprocessing import spawn

from rushlight.distributed.elastic.multiprocessing.errors import record


def main(folder):
    with open(os.path.join(folder, "function"), "rb") as file:
        # The program's main module, so that functions of it are found.
        spawn.prepare(pickle.load(file))
        function, args = pickle.load(file)
    result = record(function)(*args)
    # The launcher's name for this rank in this round.
    name = os.path.basename(os.environ["TORCHELASTIC_ERROR_FILE"]).replace("error-", "result-")
    path = os.path.join(folder, name)
    with open(path + ".part", "wb") as file:
        pickle.dump(result, file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
