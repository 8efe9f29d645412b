"""Say what training gained: over the raw backbone on the test half, and over the network's start on validation."""

from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records.run_folder import RunFolder, number
from ccp_dml.reports.words import tested_on, validated_on

LEAST_CHANGE = 0.0005
"""Of a score, 0..1 scale: less than this is not seen in percent with one digit."""


def gain_over_raw(run: RunFolder, key: str = "precision_at_1") -> tuple[float, str] | None:
    """Compute what a score on the test half gained over the raw backbone, as a fraction, and quote both scores.

    None where one of them is not known.
    """
    before, after = run.score("raw", key), run.score("test", key)
    if before is None or after is None:
        return None
    return after - before, f"{SCORE_TITLES[key]} {100 * before:.1f} -> {100 * after:.1f}"


def raw_name(run: RunFolder) -> str | None:
    """Name what the trained network is compared with, for example "raw resnet50"; None where it was not scored."""
    return ((run.result or {}).get("raw") or {}).get("network")


def help_text(run: RunFolder) -> str | None:
    """Answer in words whether training helped; None where the raw backbone was not scored."""
    of_nearest, name = gain_over_raw(run), raw_name(run)
    if of_nearest is None or name is None:
        return None
    gain, numbers = of_nearest
    points = f"{abs(100 * gain):.1f} points"
    same = points == "0.0 points"
    of_all, numbers_of_all = gain_in_map(run)
    where = f"on {tested_on([run])}"
    if same and not of_all:
        return f"Training changed nothing: {numbers} {where}, as {name}."
    model = run.config.get("model", {})
    is_head = model.get("freeze_backbone") or model.get("backbone") == "identity"  # all that can be trained less
    other_mode = ", or more classes" if is_head else ", or the mode frozen"
    ways = f"the advice given, a smaller optim.lr{other_mode}"
    of_use = "Train longer, or" if name.endswith("before training") else "Use that as it is, or train it"
    to_mend = f"{of_use} in another way: {ways}."
    place = f"all images of a class are {'nearer' if of_all > 0 else 'farther'} ({numbers_of_all})"
    if same:
        nearest = f"{where} the nearest image is right as often as with {name} ({numbers})"
        if of_all > 0:
            return f"Training helped: {nearest}, and {place}."
        return f"Training did harm: {nearest}, but {place}. {to_mend}"
    if of_all and (of_all > 0) != (gain > 0):
        how = "more" if gain > 0 else "less"
        return (
            f"Training helped and harmed: {where} the nearest image is right {how} often ({numbers}, "
            f"{points} {how} than {name}), but {place}. To gain in both: {ways}."
        )
    if gain > 0:
        return f"Training helped: {numbers} {where}, {points} more than {name}."
    return f"Training did harm: {numbers} {where}, {points} less than {name}. {to_mend}"


def did_harm(run: RunFolder) -> bool:
    """Tell whether a score on the test half is visibly below the raw backbone's."""
    of_nearest, _ = gain_over_raw(run) or (0.0, "")
    return of_nearest <= -LEAST_CHANGE or gain_in_map(run)[0] < 0


def gain_in_map(run: RunFolder) -> tuple[float, str]:
    """Compute what MAP@R on the test half gained, 0 where nobody could see it in the numbers; and quote the numbers."""
    gain, numbers = gain_over_raw(run, "map_at_r") or (0.0, "")
    return (0.0, "") if abs(gain) < LEAST_CHANGE else (gain, numbers)


def progress_text(run: RunFolder) -> str | None:
    """Say what training gained since its start; None without a start or an evaluation."""
    first = run.start or (run.metrics[0] if run.metrics else {})
    best = run.best_evaluation() or {}
    before, after = number(first.get("map_at_r")), number(best.get("map_at_r"))
    if before is None or after is None or first["step"] == best["step"]:
        return None
    since = "before training" if first["step"] == 0 else f"at the first evaluation (step {first['step']:,})"
    return (
        f"On the {validated_on(run)} MAP@R went from {100 * before:.1f} % {since} to {100 * after:.1f} % at the best "
        f"(step {best['step']:,}): {100 * (after - before):+.1f} points."
    )
