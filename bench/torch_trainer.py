"""An epoch of bench/src/bin/trainer.rs in Python, by hand and by Lightning in turns; or, given programs, a table of all sides.

    torch_trainer.py --measure ROUNDS               one side, over the torch that this Python has
    torch_trainer.py BINARY RUSHLIGHT_PYTHON [ROUNDS]   the table
"""
import json
import logging
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

STEPS, BATCH, LENGTH, KINDS = 100, 16, 64, 65


def measure(rounds):
    """Seconds of an epoch by hand, of the whole `fit`, and of its steps alone, round by round, as a line of JSON."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    import lightning
    import torch
    import torch.nn.functional as F
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import TensorBoardLogger
    from torch.utils.data import DataLoader, TensorDataset
    from torch_models import Gpt

    torch.set_num_threads(2)

    def loader():
        tokens = lambda seed: (torch.arange(STEPS * BATCH * LENGTH) * seed % KINDS).reshape(-1, LENGTH)
        return DataLoader(TensorDataset(tokens(7), tokens(11)), batch_size=BATCH, shuffle=True)

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.gpt = Gpt(KINDS, 2, 4, 128, LENGTH)

        def loss(self, x, y):
            return F.cross_entropy(self.gpt(x).flatten(0, 1), y.flatten())

        def training_step(self, batch, _):
            loss = self.loss(*batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Clock(Callback):
        def on_train_epoch_start(self, *_):
            self.start = time.perf_counter()

        def on_train_epoch_end(self, *_):
            self.seconds = time.perf_counter() - self.start

    def by_hand():
        model, batches = Model(), loader()
        optimizer = model.configure_optimizers()
        total, start = 0.0, time.perf_counter()
        for x, y in batches:
            optimizer.zero_grad()
            loss = model.loss(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        return time.perf_counter() - start

    def by_lightning(root):
        model, batches, clock = Model(), loader(), Clock()
        start = time.perf_counter()
        trainer = Trainer(
            accelerator="cpu", max_epochs=1, gradient_clip_val=1.0, log_every_n_steps=10, default_root_dir=root, callbacks=[clock],
            logger=TensorBoardLogger(root), enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(model, batches)
        return time.perf_counter() - start, clock.seconds

    root = tempfile.mkdtemp(prefix="bench-trainer-")
    try:
        by_hand(), by_lightning(root)
        rows = []
        for i in range(rounds):
            # Each goes first in every other round.
            lightning_first = by_lightning(root) if i % 2 else None
            hand = by_hand()
            rows.append((hand, *(lightning_first or by_lightning(root))))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps({"name": f"Lightning {lightning.__version__}", "torch": torch.__version__, "rows": rows}))


def side(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    binary, python, rounds = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "9"
    sides = [("Rushlight's Trainer, Rust", side([binary, rounds, "--json"]))]
    for name, command in (("over PyTorch", [sys.executable]), ("over Rushlight", [python, "-m", "rushlight"])):
        found = side([*command, __file__, "--measure", rounds])
        sides.append((f"{found['name']} {name}", found))
    print("| trainer | by hand, ms a step | steps by the trainer | ratio | with start, log, checkpoint | ratio |\n|---|---|---|---|---|---|")
    for name, found in sides:
        rows = found["rows"]
        hand, fit, steps = (statistics.median(column) / STEPS * 1e3 for column in zip(*rows))
        ratio = lambda column: statistics.median(row[column] / row[0] for row in rows)
        print(f"| {name} | {hand:.2f} | {steps:.2f} | {ratio(2):.3f} | {fit:.2f} | {ratio(1):.3f} |")


if __name__ == "__main__":
    measure(int(sys.argv[2])) if sys.argv[1:2] == ["--measure"] else main()
