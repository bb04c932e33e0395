"""Parts of made-up evaluations."""

import base64
import io

import numpy as np

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def picture(rng, size):
    """Return a PNG of random squares as a data URL."""
    from PIL import Image

    pixels = rng.integers(0, 255, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def made_scores(rng, nll, accuracy, ece, members):
    noise = rng.normal(0, 0.003, 3) * (1 + 8 * ece)
    nll, accuracy, ece = nll + noise[0], min(accuracy + noise[1], 1.0), abs(ece + noise[2] / 3)
    differ = 0.08 if members > 1 else None
    return {
        "nll": nll,
        "accuracy": accuracy,
        "ece": ece,
        "adaptive_ece": ece * 0.98,
        "classwise_ece": ece * 0.2,
        "signed_ece": ece * 0.8,
        "brier": 1.7 * (1 - accuracy),
        "aurc": (1 - accuracy) ** 1.5,
        "top_5": min(1.0, accuracy + 0.035),
        "entropy": nll * 0.9,
        "mutual_information": 0.02 if members > 1 else 0.0,
        "disagreement": differ,
        "normalised_disagreement": differ and differ / (1 - accuracy),
    }


def made_summary(corrupted):
    every = [one["scores"] for severities in corrupted.values() for one in severities.values()]
    if not every:
        return None

    def over(function, chosen):
        return {
            key: None if chosen[0][key] is None else float(function([one[key] for one in chosen])) for key in chosen[0]
        }

    by_severity = {}
    for severity in map(str, range(1, 6)):
        chosen = [severities[severity]["scores"] for severities in corrupted.values()]
        parts = {
            name: over(function, chosen)
            for name, function in (("mean", np.mean), ("median", np.median), ("std", np.std))
        }
        by_severity[severity] = {key: {name: part[key] for name, part in parts.items()} for key in chosen[0]}
    return {
        "mean": over(np.mean, every),
        "median": over(np.median, every),
        "mce": 0.4 + over(np.mean, every)["ece"] if "ece" in every[0] else None,
        "by_severity": by_severity,
    }


def made_clean(rng, scores, members, size, shown):
    edges = np.linspace(0, 1, 16)
    count = np.maximum(0, (2 ** np.arange(15) - 2) // 4)
    middle = (edges[1:] + edges[:-1]) / 2
    fine = np.linspace(0, 2.3, 31)

    def filled(values):
        return [float(value) if n else None for value, n in zip(values, count, strict=True)]

    def histogram():
        right, wrong = rng.exponential(0.2, 960), rng.exponential(0.9, 40)
        return {
            "edges": fine.tolist(),
            "right": np.histogram(right, fine)[0].tolist(),
            "wrong": np.histogram(wrong, fine)[0].tolist(),
        }

    pairs = np.full((members, members), 0.08) * (1 - np.eye(members))
    return {
        "scores": scores,
        "intervals": {key: [scores[key] * 0.96, min(1.0, scores[key] * 1.04)] for key in ("nll", "accuracy", "ece")},
        "examples": 10_000,
        "members": [
            made_scores(rng, scores["nll"] * 1.2, scores["accuracy"] - 0.01, scores["ece"] * 1.3, 1)
            for _ in range(members)
        ]
        if members > 1
        else [],
        "diversity": {
            "disagreement": 0.08,
            "normalised_disagreement": 1.9,
            "kl": 0.3,
            "cosine_similarity": 0.95,
            "pairs": pairs.tolist(),
        }
        if members > 1
        else None,
        "reliability": {
            "edges": edges.tolist(),
            "confidence": filled(middle),
            "accuracy": filled(np.clip(middle - 0.04 + rng.normal(0, 0.01, 15), 0, 1)),
            "count": count.tolist(),
        },
        "risk_coverage": {
            "coverage": np.linspace(0, 1, 101).tolist(),
            "risk": ((1 - scores["accuracy"]) * np.linspace(0, 1, 101) ** (3 + 20 * scores["ece"])).tolist(),
        },
        "uncertainty": {"entropy": histogram(), "mutual_information": histogram()},
        "gallery": {
            "uncertain": [made_item(rng, k, size, 0.35) for k in range(shown)],
            "wrong": [made_item(rng, 100 + k, size, 0.98) for k in range(shown)],
        },
    }


def made_item(rng, index, size, confidence):
    label, target = CLASSES[index % 10], CLASSES[(index + 3) % 10]
    return {
        "index": index,
        "name": str(index),
        "picture": picture(rng, size) if size else None,
        "text": None,
        "values": None,
        "target": target,
        "label": label,
        "confidence": confidence,
        "entropy": 1.9 - confidence,
        "mutual_information": 0.1,
        "probs": {label: confidence, target: (1 - confidence) / 2, CLASSES[(index + 5) % 10]: (1 - confidence) / 4},
    }


def made_ood(rng, nll):
    edges = np.linspace(0, 2.3, 31)
    inside, outside = (
        np.histogram(rng.exponential(0.2, 1000), edges)[0],
        np.histogram(rng.normal(1.2, 0.4, 1000), edges)[0],
    )
    auroc = 0.94 - nll + rng.normal(0, 0.004, 4)
    names = ("max_probability", "entropy", "mutual_information", "energy")
    return {
        "examples": 10_000,
        "measures": {
            name: {"auroc": float(one), "aupr": float(one) + 0.01, "fpr95": 2 - 1.9 * float(one)}
            for name, one in zip(names, auroc, strict=True)
        },
        "histograms": {
            name: {"edges": edges.tolist(), "in": inside.tolist(), "out": outside.tolist()}
            for name in ("entropy", "mutual_information")
        },
    }
