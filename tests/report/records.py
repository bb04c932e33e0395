"""Made-up evaluations that look like real ones: every part of the contract, and as little of it as is allowed."""

import math

import numpy as np
from record_parts import CLASSES, made_clean, made_ood, made_scores, made_summary

from slimbayes.evaluation.record import Evaluation

TYPES = ("gaussian_noise", "motion_blur", "fog", "contrast", "jpeg_compression")
#: Title, method, members, parameters, and how far its NLL, accuracy and ECE are from the deterministic network's.
METHODS = (
    ("deterministic", "deterministic", 1, 36_500_000, 0.0, 0.0, 0.0),
    ("MC dropout", "mc_dropout", 1, 36_500_000, -0.001, -0.001, 0.001),
    ("BatchEnsemble", "batch_ensemble", 4, 36_600_000, -0.016, 0.002, -0.005),
    ("deep ensemble", "deep_ensemble", 4, 146_000_000, -0.045, 0.006, -0.013),
    ("rank-1 normal", "rank1", 4, 36_700_000, -0.038, 0.004, -0.014),
    ("rank-1 Cauchy", "rank1", 4, 36_700_000, -0.039, 0.005, -0.015),
)


def classification(seeds=3, methods=METHODS, samples=(1, 4), picture_size=8, types=TYPES, shown=4):
    """Six methods, three seeds each, ten classes, corrupted and out-of-distribution sets."""
    return [
        _one(*method, seed=seed, samples=samples, size=picture_size, types=types, shown=shown)
        for method in methods
        for seed in range(seeds)
    ]


def bernoulli():
    """Two classes and texts, one run of each of two methods."""
    made = [_one(*method, seed=0, samples=(4,), size=0, types=(), shown=3) for method in (METHODS[0], METHODS[4])]
    for one in made:
        one.content["data"] = "imdb"
        one.content["task"] = {
            **one.content["task"],
            "likelihood": "bernoulli",
            "outputs": 1,
            "classes": ["neg", "pos"],
        }
        for result in one.content["results"].values():
            result["clean"]["scores"] |= {"auc_roc": 0.93, "auc_pr": 0.91, "top_5": None}
            for item in [*result["clean"]["gallery"]["uncertain"], *result["clean"]["gallery"]["wrong"]]:
                text = "A film that <b>almost</b> works & then doesn't. " * 8
                item |= {
                    "picture": None,
                    "text": text,
                    "target": "neg",
                    "label": "pos",
                    "probs": {"pos": 0.8, "neg": 0.2},
                }
    return made


def regression(seeds=3):
    """Two methods on a table."""
    return [
        _regression(title, shift, seed)
        for title, shift in (("deterministic", 0.2), ("rank-1 normal", 0.0))
        for seed in range(seeds)
    ]


def minimal(title="alone"):
    """As little as the contract allows: every optional part is null or empty, and the evaluation was interrupted."""
    clean = {
        "scores": {"nll": 0.5, "accuracy": None, "ece": None},
        "intervals": {},
        "examples": 10,
        "members": [],
        "diversity": None,
    }
    clean |= {"gallery": {"uncertain": [], "wrong": []}}
    content = _content(title, "rank1", 4, 1000, 0, "wine", (1,)) | {"complete": False, "training": []}
    content["task"]["classes"] = None
    content["results"] = {"1": {"clean": clean, "corrupted": {}, "summary": None, "ood": {}}}
    return Evaluation(content)


def evil():
    """Names that are markup in HTML, in LaTeX or in Markdown."""
    made = [
        _one(title, *METHODS[0][1:], seed=0, samples=(1,), size=8, types=("fog",), shown=2)
        for title in ("<script>alert(1)</script>", "a_b & c%|{d}")
    ]
    for one in made:
        one.content["data"] = "<img src=x onerror=alert(2)>"
        for item in one.content["results"]["1"]["clean"]["gallery"]["wrong"]:
            item |= {"picture": "javascript:alert(3)", "target": "</dl><script>alert(4)</script>"}
    return made


def _content(title, method, members, parameters, seed, data, samples):
    return {
        "format": 1,
        "name": f"{title}-seed{seed}",
        "title": title,
        "seed": seed,
        "method": method,
        "members": members,
        "point": False,
        "parameters": parameters,
        "data": data,
        "task": {
            "likelihood": "categorical",
            "outputs": 10,
            "classes": list(CLASSES),
            "target_mean": 0.0,
            "target_std": 1.0,
        },
        "settings": {
            "samples": list(samples),
            "seed": 0,
            "which": "best",
            "limit": None,
            "corruptions": "own",
            "severities": [1, 2, 3, 4, 5],
            "ood": ["svhn"],
        },
        "provenance": {
            "commit": "6d3cfa8b7c1e4f5a9d20",
            "versions": {"slimbayes": "0.1.0", "python": "3.12.3", "torch": "2.13.0", "numpy": "2.3.1"},
            "hardware": {"machine": "x86_64", "processor": "AMD EPYC 7B13", "cores": 2, "threads": 1, "gpu": None},
            "time": "2026-11-16T09:00:00+00:00",
        },
        "config": {},
        "weights": "",
        "seconds": 12.3,
        "complete": True,
        "training": [],
        "results": {},
        "posterior": None,
    }


def _one(title, method, members, parameters, nll, accuracy, ece, seed, samples, size, types, shown):
    rng = np.random.default_rng([sum(map(ord, title)), seed])
    content = _content(title, method, members, parameters, seed, "cifar10", samples)
    content["training"] = [
        {
            "epoch": epoch,
            "train": {
                "nll": 2 * math.exp(-epoch / 4) + 0.05,
                "kl": 100.0 + epoch,
                "beta": min(1, epoch / 10),
                "loss": 2 * math.exp(-epoch / 4) + 0.1,
                "accuracy": 1 - math.exp(-epoch / 3),
            },
            "validation": {
                "nll": 2 * math.exp(-epoch / 5) + 0.16 + nll,
                "accuracy": 0.95 - 0.6 * math.exp(-epoch / 4),
                "ece": 0.02,
                **({"disagreement": 0.1, "member_accuracy": 0.9 - 0.6 * math.exp(-epoch / 4)} if members > 1 else {}),
            }
            if epoch % 2 == 0
            else None,
        }
        for epoch in range(1, 21)
    ]
    for draws in samples:
        gain = 0.004 * math.log2(max(samples) / draws) if method in ("rank1", "mc_dropout") else 0.0
        clean_scores = made_scores(rng, 0.159 + nll + gain, 0.96 + accuracy, 0.023 + ece, members)
        corrupted = {
            kind: {
                str(severity): {
                    "scores": made_scores(
                        rng,
                        0.3 + (nll + gain + 0.2) * severity * (1 + 0.2 * k),
                        0.95 + accuracy - 0.07 * severity * (1 + 0.15 * k),
                        0.03 + ece + 0.03 * severity * (1 + 0.2 * k),
                        members,
                    )
                }
                for severity in range(1, 6)
            }
            for k, kind in enumerate(types)
        }
        content["results"][str(draws)] = {
            "clean": made_clean(rng, clean_scores, members, size, shown),
            "corrupted": corrupted,
            "summary": made_summary(corrupted),
            "ood": {"svhn": made_ood(rng, nll)},
        }
    if method == "rank1":
        content["posterior"] = {
            "spectra": [
                {"layer": str(k), "mean": [0.5, 0.2, 0.1, 0.05], "std": [0.9, 0.06, 0.02, 0.01]} for k in range(2)
            ],
            "heat_maps": [
                {
                    "layer": "0",
                    "shape": [64, 32],
                    "sigma": rng.random((16, 8)).tolist(),
                    "rank1": rng.random((16, 8)).tolist(),
                    "rank2": rng.random((16, 8)).tolist(),
                }
            ],
        }
    return Evaluation(content)


def _regression(title, shift, seed):
    rng = np.random.default_rng([sum(map(ord, title)), seed])
    members = 4 if shift == 0 else 1
    content = _content(title, "rank1", members, 5000, seed, "boston", (1, 4))
    content["task"] = {"likelihood": "gaussian", "outputs": 1, "classes": None, "target_mean": 22.5, "target_std": 9.2}

    def scores(extra=0.0):
        draw = rng.normal(0, 0.02, 3)
        return {
            "nll": 2.5 + shift + extra + draw[0],
            "rmse": 3.0 + shift + extra + draw[1],
            "crps": 1.6 + shift / 2 + extra + draw[2],
            "coverage": 0.91 - shift / 2,
            "width": 9.8 - 4 * shift,
            "aleatoric_std": 2.5,
            "epistemic_std": 1.1 if members > 1 else 0.0,
        }

    target = rng.normal(22.5, 9.2, 60)
    mean, std = target + rng.normal(0, 3, 60), rng.uniform(2, 4, 60)
    levels = np.linspace(0.05, 0.95, 19)
    features = {"CRIM": 0.1, "RM": 6.2, "LSTAT": 12.4, "AGE": 65.2, "a<b>": None, "TAX": 296.0}
    items = [
        {
            "index": k,
            "name": str(k),
            "picture": None,
            "text": None,
            "values": features,
            "target": float(target[k]),
            "mean": float(mean[k]),
            "std": float(std[k]),
            "aleatoric_std": 2.5,
            "epistemic_std": 1.1,
        }
        for k in range(3)
    ]
    for draws in (1, 4):
        corrupted = {
            kind: {str(severity): {"scores": scores(0.3 * severity)} for severity in range(1, 6)}
            for kind in ("missing_features", "noise")
        }
        content["results"][str(draws)] = {
            "clean": {
                "scores": scores(),
                "intervals": {"nll": [2.4, 2.7], "rmse": [2.8, 3.3]},
                "examples": 51,
                "members": [scores(0.2) for _ in range(members)] if members > 1 else [],
                "diversity": None,
                "calibration": {"level": levels.tolist(), "coverage": (levels**1.1).tolist()},
                "scatter": {"target": target.tolist(), "mean": mean.tolist(), "std": std.tolist()},
                "gallery": {"uncertain": items, "wrong": items[:2]},
            },
            "corrupted": corrupted,
            "summary": made_summary(corrupted),
            "ood": {},
        }
    return Evaluation(content)
