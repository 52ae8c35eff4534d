"""Event files of ``SummaryWriter``, read back by TensorBoard."""

import json
import os
import pathlib
import subprocess

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.utils.tensorboard import SummaryWriter

READER = pathlib.Path(__file__).parents[3] / "tests" / "tensorboard" / "read.py"


def read(directory):
    python = os.environ.get("RUSHLIGHT_TENSORBOARD_PYTHON")
    if not python:
        pytest.skip("RUSHLIGHT_TENSORBOARD_PYTHON is not set; scripts/tensorboard prints a Python that has TensorBoard")
    return json.loads(subprocess.run([python, READER, directory], check=True, capture_output=True, timeout=120).stdout)


def test_everything_is_read_back(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(10):
            writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
        writer.add_scalar("named", 2, global_step=3, walltime=1e9)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 4)
        writer.add_histogram("weights", torch.arange(100.0), 2)
        writer.add_histogram("few", [1, 2, 3, 4], 2, bins=[0, 2, 4])
        writer.add_image("picture", torch.rand(3, 4, 6), 1)
        writer.add_images("grid", torch.rand(3, 1, 4, 6), 1)
        writer.add_text("note", "a **text**", 5)
        writer.add_graph(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
        writer.add_hparams({"lr": 0.1, "name": "x", "deep": True}, {"best": 0.5}, run_name="hp")
        assert writer.get_logdir() == str(tmp_path)
    # As in PyTorch, a writer that is used after it was closed starts another file.
    files = len(list(tmp_path.glob("events*")))
    writer.add_scalar("late", 1.0, 9)
    writer.close()
    assert len(list(tmp_path.glob("events*"))) == files + 1
    found = read(tmp_path)
    assert found["scalars"]["loss"][3] == [3, 0.25]
    assert found["scalars"]["named"] == [[3, 2.0]]
    assert found["histograms"]["weights"]["num"] == 100 and sum(found["histograms"]["weights"]["counts"]) == 100
    assert found["histograms"]["few"]["limits"] == [0, 2, 4] and found["histograms"]["few"]["counts"] == [0, 1, 3]
    assert found["images"]["picture"]["png"] == [6, 4] and found["images"]["grid"]["png"] == [18, 4]
    assert found["text"]["note/text_summary"] == [[5, "a **text**"]]
    assert [node[1] for node in found["graph"]] == ["Sequential", "Linear", "ReLU"]
    assert read(tmp_path / "both_a")["scalars"]["both"] == [[4, 1.0]]
    hparams = read(tmp_path / "hp")
    assert hparams["hparams"] == {"lr": 0.1, "name": "x", "deep": True} and hparams["scalars"]["best"] == [[0, 0.5]]


def test_sound_and_curves(tmp_path):
    labels, predictions = torch.tensor([1, 0, 1, 0, 1]), torch.tensor([0.9, 0.2, 0.4, 0.6, 0.7])
    with SummaryWriter(tmp_path) as writer:
        writer.add_audio("tone", torch.tensor([[0.0, 0.5, -1.0]]), 3, sample_rate=8000)
        writer.add_pr_curve("cats", labels, predictions, 4, num_thresholds=5)
        writer.add_pr_curve_raw("raw", [2, 1], [1, 0], [0, 1], [0, 1], [0.5, 1.0], [1.0, 0.5], 4)
        with pytest.raises(AssertionError, match="1 dimensional"):
            writer.add_audio("tone", torch.zeros(2, 3))
        with pytest.raises(RuntimeError, match="from 0 to 1"):
            writer.add_pr_curve("cats", labels, predictions + 1)
    found = read(tmp_path)
    assert found["audio"]["tone"] == [3, 8000.0, 3, "audio/wav", "RIFF"]
    # PyTorch's own curve of the same values.
    tp, fp = [3, 3, 2, 1, 0], [2, 1, 1, 0, 0]
    assert found["pr_curves"]["cats"][:2] == [tp, fp]
    assert found["pr_curves"]["cats"][5] == pytest.approx([1, 1, 2 / 3, 1 / 3, 0])
    assert found["pr_curves"]["raw"] == [[2, 1], [1, 0], [0, 1], [0, 1], [0.5, 1.0], [1.0, 0.5]]


def test_misuse_is_told(tmp_path):
    writer = SummaryWriter(log_dir=tmp_path)
    with pytest.raises(ValueError, match="negative"):
        writer.add_scalar("loss", 1.0, -1)
    with pytest.raises(ValueError, match="CHW"):
        writer.add_image("picture", torch.rand(4, 6))
    with pytest.raises(TypeError):
        writer.add_hparams([], {})
    writer.close()


def test_embeddings(tmp_path):
    writer = SummaryWriter(str(tmp_path))
    writer.add_embedding(torch.tensor([[1.0, 2.0], [3.0, 4.5]]), metadata=["a", "b"])
    writer.add_embedding(torch.zeros(2, 2), metadata=[["a", 1], ["b", 2]], metadata_header=["name", "n"], global_step=3, tag="x/y")
    writer.close()
    assert (tmp_path / "00000" / "default" / "tensors.tsv").read_text() == "1.0\t2.0\n3.0\t4.5\n"
    assert (tmp_path / "00000" / "default" / "metadata.tsv").read_text() == "a\nb\n"
    assert (tmp_path / "00003" / "x%2fy" / "metadata.tsv").read_text() == "name\tn\na\t1\nb\t2\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2 and 'tensor_path: "00003/x%2fy/tensors.tsv"' in config and 'tensor_name: "x/y:00003"' in config
    with pytest.raises(AssertionError, match="#labels"):
        writer.add_embedding(torch.zeros(2, 2), metadata=["a"])
