"""Sentences that say how far one measure of a judge can be trusted, and what to do next."""

from typing import Final

from app.answers.domain.calibration import FEWEST_LABELS, LEAST_KAPPA
from app.answers.domain.judge_report import CalibrationBody, LengthBiasView, ProportionView
from app.base.number_text import percent_text

_ADVISED: Final = 200
"""Labels that show a good judge as calibrated in .95 of draws: `benchmarks.judge`."""

_UNKNOWN: Final = (
    "Uncalibrated: people have labelled no answers for its present model and wording, so nobody knows how often it is"
    " right. Read its numbers as a hint only."
)


def trust_sentences(found: CalibrationBody | None) -> list[str]:
    """Return what is known of a measure: whether it is confirmed, the true rate, the errors, and length."""
    if found is None or not found["labels"]:
        return [_UNKNOWN]
    if found["calibrated"]:
        state = f"Calibrated: people and judge agree well beyond chance ({found['reason']})."
    else:
        state = f"Uncalibrated, a hint only: {found['reason']}."
    return [
        state,
        _rate(found),
        *_errors(found["sensitivity"], found["specificity"]),
        *([] if found["length_bias"] is None else [_length(found["length_bias"])]),
    ]


def next_step(found: CalibrationBody | None) -> str:
    """Return what to do next about a measure."""
    if found is None or not found["labels"]:
        return f"Draw about {_ADVISED} answers below and let people label them."
    missing = _ADVISED - found["labels"]
    kappa = found["kappa"]
    if not found["calibrated"]:
        hopeless = kappa["high"] is not None and kappa["high"] < LEAST_KAPPA
        if hopeless or missing <= 0:
            return "Try another model, then label anew: with this one people and judge agree too little."
        return f"Label about {missing} more answers."
    if found["length_bias"] is not None and found["length_bias"]["shown"]:
        return "Compare only answers of similar length by it: length alone changes its verdicts."
    if found["labels"] < FEWEST_LABELS:
        return f"Label {FEWEST_LABELS - found['labels']} more answers for a narrower interval of the rate."
    return "Nothing for now. Draw and label anew once its model or the kind of answers changes."


def _rate(found: CalibrationBody) -> str:
    rate = found["rate"]
    if rate["value"] is None:
        return "The rate that people would give is unknown."
    people = (
        f"People would say yes of {percent_text(rate['value'])} of the answers, between {percent_text(rate['low'])} and"
        f" {percent_text(rate['high'])} with 95 % confidence ({rate['reason']})"
    )
    judge = rate["judge_rate"]
    if judge is None:
        return f"{people}."
    is_within = rate["low"] <= judge <= rate["high"]
    place = "within that" if is_within else "outside of that, so use the first number and not the judge's own"
    return f"{people}; the judge alone says {percent_text(judge)}, {place}."


def _errors(sensitivity: ProportionView, specificity: ProportionView) -> list[str]:
    sentences = []
    if sensitivity["value"] is not None:
        accepted = f"{sensitivity['successes']} of {sensitivity['count']}"
        sentences.append(f"It accepts {accepted} answers that people accept ({_interval(sensitivity)}).")
    if specificity["value"] is not None:
        refused = f"{specificity['successes']} of {specificity['count']}"
        passing = f"so about {100 * (1 - specificity['value']):.0f} of 100 bad answers pass it"
        sentences.append(f"It refuses {refused} answers that people refuse ({_interval(specificity)}), {passing}.")
    return sentences


def _length(bias: LengthBiasView) -> str:
    low, high, difference = bias["low"], bias["high"], bias["difference"]
    if low is None or high is None or difference is None:
        return "Whether it prefers long answers is not measured yet."
    if not bias["shown"]:
        of = f"95 % interval {_points(low)} to {_points(high)}, {bias['pairs']} pairs"
        more = f"{_points(difference)} points ({of})"
        return f"No effect of length is shown: padded with true sentences, answers get YES more often by {more}."
    word, often = ("long", "more") if difference > 0 else ("short", "less")
    least, value, most = sorted(round(100 * abs(share)) for share in (low, difference, high))
    by = f"by {value} points (95 % interval {least} to {most}, {bias['pairs']} pairs)"
    return f"It prefers {word} answers: padded with true sentences, the same answers get YES {often} often {by}."


def _interval(one: ProportionView) -> str:
    return f"{percent_text(one['low'])} to {percent_text(one['high'])}"


def _points(share: float) -> str:
    rounded = round(100 * share)
    return f"{rounded:+d}".replace("-", "\N{MINUS SIGN}") if rounded else "0"
