"""Evaluation: scores of trained models on clean, corrupted and out-of-distribution examples."""

from typing import TYPE_CHECKING

from slimbayes._lazy import lazily

if TYPE_CHECKING:
    from slimbayes.evaluation.evaluating import evaluate as evaluate
    from slimbayes.evaluation.loading import load_subject as load_subject
    from slimbayes.evaluation.record import Evaluation as Evaluation
    from slimbayes.evaluation.settings import Settings as Settings
    from slimbayes.evaluation.subject import Subject as Subject

#: Where each public name is.
_PLACES = {
    "evaluate": "evaluating",
    "load_subject": "loading",
    "Evaluation": "record",
    "Settings": "settings",
    "Subject": "subject",
}

__getattr__ = lazily("slimbayes.evaluation", _PLACES)
