"""Makes fixtures/*.json: predictions and what scikit-learn says about them.

python -m pip install -r requirements.txt, then python make_fixtures.py. Needed only to make them anew.
"""

import json
import pathlib

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn import metrics

FOLDER = pathlib.Path(__file__).parent / "fixtures"


def calibration_error(probabilities, labels):
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 16)
    error = 0.0
    for low, high in zip(edges[:-1], edges[1:]):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            error += inside.sum() * abs(right[inside].mean() - confidence[inside].mean())
    return error / len(labels)


def temperature(logits, labels):
    def nll(inverse):
        return -log_softmax(logits * inverse, axis=1)[np.arange(len(labels)), labels].mean()

    best = minimize_scalar(nll, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-12})
    return 1 / best.x


def least_cost_of_two(probabilities, labels, costs):
    """By trying every cut between two images: class 1 from that probability on."""
    values = np.unique(probabilities[:, 1])
    cuts = np.concatenate([[-1], (values[:-1] + values[1:]) / 2, [2]])
    return min(costs[labels, (probabilities[:, 1] > cut).astype(int)].mean() for cut in cuts)


def expect(logits, labels):
    classes = logits.shape[1]
    probabilities = softmax(logits, axis=1)
    predicted = probabilities.argmax(axis=1)
    everything = list(range(classes))
    precision, recall, f1, images = metrics.precision_recall_fscore_support(
        labels, predicted, labels=everything, zero_division=0)
    auroc, average_precision = [], []
    for c in everything:
        truth = labels == c
        known = truth.any() and not truth.all()
        auroc.append(metrics.roc_auc_score(truth, probabilities[:, c]) if known else None)
        average_precision.append(
            metrics.average_precision_score(truth, probabilities[:, c]) if known else None)
    mean = lambda values: float(np.mean([v for v in values if v is not None] or [0]))
    fitted = temperature(logits, labels)
    return {
        "loss": metrics.log_loss(labels, probabilities, labels=everything),
        "accuracy": metrics.accuracy_score(labels, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, predicted),
        "macro_f1": metrics.f1_score(labels, predicted, average="macro", zero_division=0),
        "auroc": mean(auroc),
        "average_precision": mean(average_precision),
        "confusion": metrics.confusion_matrix(labels, predicted, labels=everything).ravel().tolist(),
        "precision": precision.tolist(),
        "recall": recall.tolist(),
        "f1": f1.tolist(),
        "images": images.tolist(),
        "class_auroc": auroc,
        "class_average_precision": average_precision,
        "calibration_error": calibration_error(probabilities, labels),
        "temperature": fitted,
        "calibrated_error": calibration_error(softmax(logits / fitted, axis=1), labels),
    }


def sample(seed, shares, sharpness, scale=1.0, step=None):
    """Logits of a model that knows something; `scale` makes it over-confident, `step` makes ties."""
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.full(n, c) for c, n in enumerate(shares)])
    random.shuffle(labels)
    logits = random.normal(size=(len(labels), len(shares)))
    logits[np.arange(len(labels)), labels] += sharpness
    logits *= scale
    logits = np.round(logits, 4) if step is None else np.round(logits / step) * step
    return logits.astype(np.float32).astype(np.float64), labels


CASES = {
    "imbalanced": sample(1, [120, 30, 12, 6], 1.5, scale=2.5),
    "many_ties": sample(2, [40, 40, 40], 1.0, step=0.5),
    "class_without_images": sample(3, [50, 0, 20], 1.0),
    "two_classes": sample(4, [90, 15], 1.0, scale=0.4),
    "few": sample(5, [2, 1, 1], 1.0),
}


def main():
    for name, (logits, labels) in CASES.items():
        want = expect(logits, labels)
        if logits.shape[1] == 2:
            costs = np.array([[0.0, 1.0], [8.0, 0.0]])
            calibrated = softmax(logits / want["temperature"], axis=1)
            want["least_cost"] = least_cost_of_two(calibrated, labels, costs)
        case = {"logits": logits.ravel().tolist(), "labels": labels.tolist(), "want": want}
        (FOLDER / f"{name}.json").write_text(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
