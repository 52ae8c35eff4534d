"""torchmetrics' values for crates/train's metrics, over batches of different sizes; scikit-learn must agree where it has the figure.

    python tests/goldens/metrics.py     # writes data/metrics.json; needs torch, torchmetrics and scikit-learn
"""

import json
import math
import pathlib

import numpy as np
import sklearn.metrics as sk
import torch
import torchmetrics
from torchmetrics import classification, regression, text

SIZES = [7, 1, 12, 5]
rng = np.random.default_rng(5)


def batches(make):
    return [make(n) for n in SIZES]


def run(metric, pairs):
    for a, b in pairs:
        metric.update(a, b)
    return metric.compute()


def case(name, kind, pairs, value, **options):
    assert math.isfinite(float(value)), name
    return {
        "name": name,
        "metric": kind,
        "options": options,
        "batches": [[np.asarray(a).tolist(), np.asarray(b).tolist()] for a, b in pairs],
        "value": float(value),
    }


cases = []
classes = 4
scores = batches(lambda n: (torch.tensor(rng.normal(size=(n, classes)).round(3)), torch.tensor(rng.integers(0, 3, size=n))))
guess = np.concatenate([s.argmax(1).numpy() for s, _ in scores])
truth = np.concatenate([t.numpy() for _, t in scores])
mc = dict(num_classes=classes)
cases.append(case("accuracy", "Accuracy", scores, run(classification.MulticlassAccuracy(average="micro", **mc), scores)))
assert abs(cases[-1]["value"] - sk.accuracy_score(truth, guess)) < 1e-6
value = run(classification.MulticlassAccuracy(average="micro", top_k=2, **mc), scores)
cases.append(case("accuracy of two", "Accuracy", scores, value, top_k=2))
value = run(classification.MulticlassAccuracy(average="micro", ignore_index=1, **mc), scores)
cases.append(case("accuracy without a class", "Accuracy", scores, value, ignore_index=1))
for kind, metric, reference in [
    ("Precision", classification.MulticlassPrecision, sk.precision_score),
    ("Recall", classification.MulticlassRecall, sk.recall_score),
    ("F1Score", classification.MulticlassF1Score, sk.f1_score),
]:
    for average in ("micro", "macro", "weighted"):
        value = run(metric(average=average, **mc), scores)
        cases.append(case(f"{kind} {average}", kind, scores, value, num_classes=classes, average=average))
        assert abs(float(value) - reference(truth, guess, average=average, zero_division=0)) < 1e-6, (kind, average)
matrix = run(classification.MulticlassConfusionMatrix(**mc), scores)
assert (matrix.numpy() == sk.confusion_matrix(truth, guess, labels=range(classes))).all()
cases.append(case("confusion matrix", "ConfusionMatrix", scores, 0, num_classes=classes, matrix=matrix.tolist()))
soft = [(s.softmax(1), t) for s, t in scores]
value = run(classification.MulticlassAUROC(num_classes=3, average="macro"), [(s[:, :3], t) for s, t in soft])
cases.append(case("auroc of three", "Auroc", [(s[:, :3], t) for s, t in soft], value, num_classes=3))
binary = batches(lambda n: (torch.tensor((rng.integers(0, 9, size=n) / 8).round(3)), torch.tensor(rng.integers(0, 2, size=n))))
cases.append(case("auroc with ties", "Auroc", binary, run(classification.BinaryAUROC(), binary)))
all_scores, all_truth = (np.concatenate([np.asarray(p[i]) for p in binary]) for i in (0, 1))
assert abs(cases[-1]["value"] - sk.roc_auc_score(all_truth, all_scores)) < 1e-6
cases.append(case("binary accuracy", "Accuracy", binary, run(classification.BinaryAccuracy(), binary)))
logits = [(4 * s - 2, t) for s, t in binary]
cases.append(case("accuracy of logits", "Accuracy", logits, run(classification.BinaryAccuracy(), logits)))
numbers = batches(lambda n: (torch.tensor(rng.normal(size=n)), torch.tensor(rng.normal(size=n) + 3)))
close = [(t + 0.3 * s, t) for s, t in numbers]
for kind, metric, reference in [
    ("MeanSquaredError", regression.MeanSquaredError, sk.mean_squared_error),
    ("MeanAbsoluteError", regression.MeanAbsoluteError, sk.mean_absolute_error),
    ("R2Score", regression.R2Score, sk.r2_score),
]:
    value = run(metric().double() if hasattr(metric(), "double") else metric(), close)
    all_guess, all_truth = (np.concatenate([np.asarray(p[i]) for p in close]) for i in (0, 1))
    exact = reference(all_truth, all_guess)
    assert abs(float(value) - exact) < 1e-5, (kind, float(value), exact)
    cases.append(case(kind, kind, close, exact))
tokens = batches(lambda n: (torch.tensor(rng.normal(size=(n, 3, 6)).round(3)), torch.tensor(rng.integers(0, 6, size=(n, 3)))))
cases.append(case("perplexity", "Perplexity", tokens, run(text.Perplexity(), tokens)))
cases.append(case("perplexity without padding", "Perplexity", tokens, run(text.Perplexity(ignore_index=2), tokens), ignore_index=2))

words = "the a cat dog sat ran on under mat rug red big".split()
sentence = lambda n: " ".join(rng.choice(words[:5], size=n))
translations = [[sentence(int(k)) for k in rng.integers(6, 11, size=n)] for n in SIZES]
references = [[[sentence(int(k)) for k in rng.integers(6, 11, size=2)] for _ in batch] for batch in translations]
for options in ({}, {"n_gram": 2}, {"smooth": True}):
    value = run(text.BLEUScore(**options), list(zip(translations, references)))
    cases.append({"name": f"bleu {options}", "metric": "BleuScore", "options": options,
                  "batches": [list(pair) for pair in zip(translations, references)], "value": float(value)})

path = pathlib.Path(__file__).parent / "data" / "metrics.json"
versions = {"torchmetrics": torchmetrics.__version__, "torch": torch.__version__.split("+")[0]}
path.write_text(json.dumps({"versions": versions, "cases": cases}) + "\n")
print(f"{len(cases)} cases to {path.name}")
