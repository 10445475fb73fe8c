"""What a report says in words of how far a judge can be trusted, by what people labelled, and what to do next."""

import math
from collections.abc import Mapping
from typing import Final

from app.annotation.domain.pools import MOST_ANSWERS
from app.answers.domain.labellers import agree_no_better
from app.answers.domain.trust import (
    ADVISED,
    FEWEST_LABELS,
    FEWEST_OF_A_KIND,
    LEAST_KAPPA,
    TOO_LITTLE,
    CalibrationBody,
    CheckRateView,
    LengthBiasView,
    ProportionView,
    lacking_labels,
    may_agree,
)
from app.base.texts import JUDGE_EDITED, counted, listed, percent_text
from app.base.values import EMPTY, Value

_UNKNOWN: Final = (
    "Uncalibrated: people have labelled no answers for its present model and wording, so nobody knows how often it is"
    " right. Read its numbers as a hint only."
)


class LabelsOfNow(Value):
    """Labels of an edited judge as it is now, too few to be used yet."""

    task: str
    labels: int
    yes: int
    disputed: int
    drawn: int
    """Answers of the task."""


def trust_sentences(
    found: CalibrationBody | None,
    *,
    waiting: int = 0,
    of_others: Mapping[str, int] = EMPTY,
    drawn: str = "",
    edited: bool = False,
    of_now: LabelsOfNow | None = None,
    lone: str = "",
    archived: Mapping[str, int] = EMPTY,
) -> list[str]:
    """Return what is known of a measure: whether it is confirmed, the true rate, the errors, and length.

    `drawn` is the day that the answers were drawn on: the rate is of these, not of later ones. `edited`: the judge asks
    another endpoint since, so that all of this is of what it was before; labels `of_now` are too few yet. `waiting`
    labels came since, and are counted soon; those `of_others`, by who rated the answers, and those of `archived` tasks,
    by task, never are. `lone`: who alone gave labels that nobody checked, where people and judge agree too little.
    """
    soon = [f"{counted(waiting, 'new label')} {'is' if waiting == 1 else 'are'} counted within a minute."]
    never = [
        f"{counted(labels, 'label')} of answers rated by {rater} {'does' if labels == 1 else 'do'} not count for the"
        " judge as it is now."
        for rater, labels in of_others.items()
    ]
    disputed = [] if found is None or not found["disputed"] else [_disputed(found)]
    if found is None or not found["labels"]:
        unknown = "Uncalibrated, a hint only: no label counts yet." if disputed else _UNKNOWN
        if archived and not disputed:
            of = listed([f"{counted(labels, 'label')} of archived task {task}" for task, labels in archived.items()])
            unknown = f"Uncalibrated, a hint only: {of} no longer count."
        return [*(soon if waiting else [unknown]), *disputed, *never]
    is_open = agree_no_better(found["labellers"], found["kappa"]["value"])
    if found["calibrated"]:
        state = f"Calibrated: people and judge agree well beyond chance ({found['reason']})."
    else:
        state = f"Uncalibrated{'' if is_open else ', a hint only'}: {found['reason']}."
    return [
        state,
        *([_differ_as_much(found)] if is_open else []),
        *(
            [f"All labels are of {lone}, and nobody checked them: whether the judge errs or {lone} is not known."]
            if lone
            else []
        ),
        *([_EDITED] if edited else []),
        *([] if of_now is None else [_waits(of_now)]),
        *disputed,
        _rate(found, drawn),
        *_errors(found, lone),
        *([] if found["length_bias"] is None else [_length(found["length_bias"])]),
        *(soon if waiting else []),
        *never,
    ]


_EDITED: Final = (
    f"{JUDGE_EDITED[0].upper()}{JUDGE_EDITED[1:]}: it asks another endpoint now, which may err more or less often than"
    " what follows says."
)


def _disputed(found: CalibrationBody) -> str:
    number = found["disputed"]
    are, them = ("is", "it") if number == 1 else ("are", "them")
    waits = f"{counted(number, 'answer')} {are} disputed and left out until somebody decides, since people disagree on"
    return f"{waits} {them}{'; what is told here is of easier ones' if found['labels'] else ''}."


def label_anew(found: LabelsOfNow | None) -> str:
    """Return what to do next about a measure whose judge was edited since; None: no answers of now are drawn."""
    if found is None:
        return "Draw answers of new runs below and let people label them: the labels are of another endpoint."
    if number := found.disputed:
        return f"Decide on the {counted(number, 'disputed answer')} of task {found.task}: each becomes a label."
    if found.labels < found.drawn:
        return f"Label more answers of task {found.task}."
    return f"Draw more answers of new runs below: all {found.drawn} of task {found.task} are labelled."


def _waits(found: LabelsOfNow) -> str:
    lacking = lacking_labels(found.labels, found.yes)
    return f"Task {found.task} is of the judge as it is now, and counts instead once it has enough: {lacking} so far."


def check_sentence(
    found: CheckRateView,
    *,
    drawn: str = "",
    edited: bool = False,
    anew: CheckRateView | None = None,
    of: str = "",
    now: str = "",
    is_other: bool = False,
) -> str:
    """Return what people would say of the answers of a check, and whether its runs are corrected by their labels.

    `drawn`, `edited`: as of `trust_sentences`; `anew`: what labels of the edited judge as it is now say, too few yet.
    `of`: the retriever that it asked when they were drawn, `now`: by now; `is_other`:
    it was edited since, so that it may answer otherwise.
    """
    rate, check = found["rate"], found["check"]
    if rate["value"] is None:
        return f"No label of an answer of check {check} counts yet, so its numbers are the judge's own."
    other = f" These are answers of retriever {of} before it was edited: label anew." if is_other else ""
    if of != now:
        other = f" These are answers of retriever {of}, and the check asks {now} by now: label anew."
    people = (
        f"Of the answers of check {check}{_drawn(drawn)}, people would say yes of {percent_text(rate['value'])},"
        f" between {percent_text(rate['low'])} and {percent_text(rate['high'])} with 95 % confidence"
    )
    judge = "" if rate["judge_rate"] is None else f"; the judge alone says {percent_text(rate['judge_rate'])}"
    if found["corrects"]:
        earlier = ", given before the judge was edited" if edited else ""
        if edited and anew is not None:
            earlier += f"; of the judge as it is now there are {lacking_labels(anew['labels'], anew['yes'])}"
        return f"{people}{judge}. Its runs are corrected by {counted(found['labels'], 'label')}{earlier}.{other}"
    return f"{people}{judge}. Its runs are not corrected yet: {found['reason']}.{other}"


def agree_too_little(found: CalibrationBody | None) -> bool:
    """Whether labels show that people and judge agree too little, which more labels will not change.

    Where people agree with each other no better, labels show nothing of the judge.
    """
    if found is None or not found["labels"] or found["calibrated"]:
        return False
    if agree_no_better(found["labellers"], found["kappa"]["value"]):
        return False
    return not may_agree(found["kappa"]["value"], found["kappa"]["high"], found["labels"], _rarer(found))


def _rarer(found: CalibrationBody) -> int:
    """Return how many labels are of the rarer kind, yes or no."""
    return min(found["yes"], found["labels"] - found["yes"])


class LabelRoom(Value):
    """Answers that people could label."""

    task: str
    open: int
    """Drawn answers of the task that have no label yet."""
    rated: int
    """All that a new task could draw, labelled or not."""


def wanted_labels(found: CalibrationBody) -> int | None:
    """Return how many labels in all would calibrate a measure, or be enough; None: more labels are not what it lacks.

    The lower end of kappa comes closer to kappa by the root of their number. Where kappa itself is below what is
    needed, but may be higher, it is as many as show that. Two digits are told of a large number.
    """
    labels, kappa = found["labels"], found["kappa"]
    if found["calibrated"]:
        return FEWEST_LABELS if labels < FEWEST_LABELS else None
    if agree_too_little(found) or agree_no_better(found["labellers"], kappa["value"]):
        return None
    if kappa["value"] is None or kappa["low"] is None or kappa["value"] <= LEAST_KAPPA:
        return ADVISED if labels < ADVISED else _labels_for_rarer(found)
    enough: float = labels * ((kappa["value"] - kappa["low"]) / (kappa["value"] - LEAST_KAPPA)) ** 2
    step: int = 10 ** max(math.floor(math.log10(enough)) - 1, 0)
    wanted = max(ADVISED, math.ceil(round(enough / step, 6)) * step)
    return wanted if wanted <= MOST_ANSWERS else (_labels_for_rarer(found) or wanted)


def _labels_for_rarer(found: CalibrationBody) -> int | None:
    """Return how many labels would hold enough of the rarer kind to tell of kappa; None: there are enough, or none."""
    if not 0 < _rarer(found) < FEWEST_OF_A_KIND or found["labels"] >= MOST_ANSWERS:
        return None
    enough = math.ceil(found["labels"] * FEWEST_OF_A_KIND / _rarer(found) / 10) * 10
    return min(max(enough, ADVISED), MOST_ANSWERS)


def next_step(found: CalibrationBody | None, *, lone: str = "", room: LabelRoom | None = None) -> str:
    """Return what to do next about a measure whose judge asks the endpoint that people labelled.

    `lone`: as of `trust_sentences`; `room`: None = its task has answers enough.
    """
    if found is None or not (found["labels"] or found["disputed"]):
        return f"Draw about {ADVISED} answers below and let people label them."
    if number := found["disputed"]:
        return f"Decide on the {counted(number, 'disputed answer')} of the task: each becomes a label."
    if not found["calibrated"]:
        return _confirm_step(found, lone, room)
    if found["length_bias"] is not None and found["length_bias"]["shown"]:
        return "Compare only answers of similar length by it: length alone changes its verdicts."
    if (wanted := wanted_labels(found)) is not None:
        return _label_more(found, wanted, room, "for a narrower interval of the rate")
    return "Nothing for now. Draw and label anew once its model or the kind of answers changes."


def _confirm_step(found: CalibrationBody, lone: str, room: LabelRoom | None) -> str:
    """Return what may confirm a measure that is not calibrated, or that another model is to be tried."""
    if agree_no_better(found["labellers"], found["kappa"]["value"]):
        twice = "Draw answers in a new task with an overlap of 1, so that two people label each"
        return f"{twice}, and let a third person decide where they differ."
    if agree_too_little(found):
        first = "Let a second person label a part, as by a task with overlap, before you try another model."
        return first if lone else f"Try another model, then label anew: with this one {TOO_LITTLE}."
    wanted = wanted_labels(found)
    if wanted is None:
        return f"Label more answers, or try another model.{_none_left(found, room)}"
    return _label_more(found, wanted, room)


def _label_more(found: CalibrationBody, wanted: int, room: LabelRoom | None, purpose: str = "") -> str:
    """Say how many answers are to be labelled, why so many, and where they come from."""
    kappa, more = found["kappa"]["value"], wanted - found["labels"]
    needed, unless = f"about {wanted:,} labels are needed", ""
    is_for_rarer = not found["calibrated"] and wanted > ADVISED and wanted == _labels_for_rarer(found)
    if is_for_rarer:
        kind = "no" if 2 * found["yes"] > found["labels"] else "yes"
        few = f"{_rarer(found)} of {found['labels']} labels {'is' if _rarer(found) == 1 else 'are'} {kind}"
        unless = f" Only {few}, too few to tell how far people and judge agree."
    elif not found["calibrated"] and kappa is not None and wanted > ADVISED:
        needed += f" at a kappa of {kappa:.2f}"
    elif not found["calibrated"] and kappa is not None and kappa <= LEAST_KAPPA:
        unless = f" At a kappa of {kappa:.2f} no number of labels is enough, but it may be higher."
    if wanted > MOST_ANSWERS:
        most = f"{needed}, and a task has {MOST_ANSWERS:,} at most.{_none_left(found, room)}"
        if found["labellers"] is not None and found["labellers"]["differ"]:
            twice = "Let two people label each answer, as by a new task with an overlap of 1"
            return f"{twice}, before you try another model: wrong labels lower kappa. Now {most}"
        return f"Try another model: {most}"
    if room is None or room.open >= more:
        if purpose:
            return f"Label {more} more answers {purpose}."
        return f"Label about {more} more answers{f': {needed}' if wanted > ADVISED else ''}.{unless}"
    if room.rated >= wanted:
        many = f"so many labels are needed at a kappa of {kappa:.2f}, " if wanted > ADVISED and not is_for_rarer else ""
        left = f"task {room.task} has {room.open or 'none'} left, and labels of two tasks are not added up"
        return f"Draw about {wanted} answers in a new task below: {many}{left}.{unless}"
    first = "Wait until new runs bring answers, and draw anew"
    if room.open:
        first = f"Label the {counted(room.open, 'answer')} that task {room.task} has left"
    return f"{first}: {needed}, and the judge has rated {counted(room.rated, 'answer')} so far.{unless}"


def _none_left(found: CalibrationBody, room: LabelRoom | None) -> str:
    if room is None or room.open or room.rated > found["labels"]:
        return ""
    return f" All {room.rated:,} answers that the judge has rated are labelled, so new runs have to bring others."


def _drawn(day: str) -> str:
    return f" that the judge rated, drawn on {day}" if day else ""


def _rate(found: CalibrationBody, drawn: str) -> str:
    rate = found["rate"]
    if rate["value"] is None:
        return "The rate that people would give is unknown."
    people = (
        f"People would say yes of {percent_text(rate['value'])} of the answers{_drawn(drawn)}, between"
        f" {percent_text(rate['low'])} and {percent_text(rate['high'])} with 95 % confidence ({rate['reason']})"
    )
    judge = rate["judge_rate"]
    if judge is None:
        return f"{people}."
    is_within = rate["low"] <= judge <= rate["high"]
    place = "within that" if is_within else "outside of that, so use the first number and not the judge's own"
    return f"{people}; the judge alone says {percent_text(judge)}, {place}."


def _errors(found: CalibrationBody, lone: str) -> list[str]:
    """Return what the judge gets wrong by the labels, and how much of that may be errors of people."""
    sensitivity, specificity, labellers = found["sensitivity"], found["specificity"], found["labellers"]
    sentences = []
    if sensitivity["value"] is not None:
        accepted = f"{sensitivity['successes']} of {sensitivity['count']}"
        sentences.append(f"It accepts {accepted} answers that people accept ({_interval(sensitivity)}).")
    if specificity["value"] is None:
        return sentences
    refused = f"{specificity['successes']} of {specificity['count']}"
    refuses = f"It refuses {refused} answers that people refuse ({_interval(specificity)})"
    low, high = (None, None) if labellers is None else (labellers["passing"]["low"], labellers["passing"]["high"])
    if labellers is None or low is None or high is None:
        passing = f"so {_of_100(1 - specificity['high'], 1 - specificity['low'])} of these pass it"
        sentences.append(f"{refuses}, {passing}.")
        if not lone:
            sentences.append(_unknown_errors(0 if labellers is None else labellers["twice"]))
        return sentences
    differ, passing = labellers["differ"], f"{_of_100(low, high)} bad answers pass it."
    twice = f"Of {counted(labellers['twice'], 'answer')} labelled by two people, {differ or 'none'} got two labels"
    theirs = f": where people err, this counts against the judge. Allowing for that, {passing}"
    sentences += [f"{refuses}.", f"{twice}{theirs if differ else f', which shows no errors of people: {passing}'}"]
    if differ and any(one["corrects"] for one in found["checks"]):
        sentences.append(_EXAGGERATE)
    return sentences


_EXAGGERATE: Final = (
    "Corrected rates of runs lean on these labels: where people err, they exaggerate how far a run is from the labelled"
    " answers."
)


def _unknown_errors(twice: int) -> str:
    few = "no answer was" if not twice else f"only {counted(twice, 'answer')} {'was' if twice == 1 else 'were'}"
    return (
        f"How often people err is not known, since {few} labelled by two of them: where they err, this counts against"
        " the judge."
    )


def _of_100(low: float, high: float) -> str:
    """Return an interval of a share in words: `5 to 33 of 100`."""
    return f"{100 * low:.0f} to {100 * high:.0f} of 100"


def _differ_as_much(found: CalibrationBody) -> str:
    """Say that people agree with each other no better than with the judge."""
    labellers, kappa = found["labellers"], found["kappa"]["value"]
    own = None if labellers is None else labellers["kappa"]["value"]
    if labellers is None or own is None or kappa is None:
        raise ValueError("how far people agree is not known")
    than = "as little as" if f"{own:.2f}" == f"{kappa:.2f}" else "less than"
    over = f"kappa {own:.2f} over {counted(labellers['twice'], 'answer')} that two labelled"
    who = "Nobody can tell which of them errs before a third person decides where two differ."
    if not found["disputed"]:
        who = "Where one person alone labelled, nobody can tell which of them errs."
    return f"People agree with each other {than} with the judge: {over}. {who}"


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
