"""What a subject predicts for some examples, or an error that says which subject predicts nonsense."""

from torch import Tensor

from slimbayes.evaluation.subject import Subject
from slimbayes.likelihoods import Categorical
from slimbayes.prediction import Prediction

__all__ = ["predict"]


def predict(
    subject: Subject, inputs: tuple[Tensor, ...], *, samples: int, batch_size: int | None, seed: int, place: str
) -> Prediction:
    """Return a subject's prediction; a point has one draw of each member, whatever is asked for.

    Args:
        subject: Whose.
        inputs: Prepared, on any device.
        samples: Draws of each member.
        batch_size: Examples at once; None for what a bounded memory allows.
        seed: Of the draws.
        place: Where the examples come from, for the error.

    Raises:
        ValueError: Some outputs are NaN or infinite. The logit of a class that is ruled out may be -inf.
    """
    prediction = subject.model.predict(
        *(x.to(subject.model.device) for x in inputs),
        samples=1 if subject.is_point else samples,
        batch_size=batch_size,
        seed=seed,
    )
    telling = prediction.outputs
    if isinstance(prediction.likelihood, Categorical):
        telling = telling.amax(prediction.likelihood.class_dim)
    wrong = telling[~telling.isfinite()]
    if len(wrong):
        raise ValueError(
            f"{subject.folder or subject.name} predicts {wrong[0].item()} for some examples ({place}), so it "
            "has no scores. Check its weights (training may have diverged), or evaluate the others without it."
        )
    return prediction
