"""Say what training gained: over the raw backbone on the test half, and over the network's start on validation."""

from ccp_dml.records.run_folder import RunFolder, number
from ccp_dml.reports.words import tested_on, validated_on

LEAST_CHANGE = 0.0005
"""Of a score, 0..1 scale: less than this is not seen in percent with one digit."""


def gain_over_raw(run: RunFolder) -> float | None:
    """Compute what P@1 on the test half gained over the raw backbone, as a fraction; None where one is not known."""
    after, before = run.score("test", "precision_at_1"), run.score("raw", "precision_at_1")
    return None if after is None or before is None else after - before


def raw_name(run: RunFolder) -> str | None:
    """Name what the trained network is compared with, for example "raw resnet50"; None where it was not scored."""
    return ((run.result or {}).get("raw") or {}).get("network")


def help_text(run: RunFolder) -> str | None:
    """Answer in words whether training helped; None where the raw backbone was not scored."""
    gain, name = gain_over_raw(run), raw_name(run)
    before, after = run.score("raw", "precision_at_1"), run.score("test", "precision_at_1")
    if gain is None or name is None or before is None or after is None:
        return None
    numbers = f"P@1 {100 * before:.1f} -> {100 * after:.1f}"
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
    return (gain_over_raw(run) or 0.0) <= -LEAST_CHANGE or gain_in_map(run)[0] < 0


def gain_in_map(run: RunFolder) -> tuple[float, str]:
    """Compute what MAP@R on the test half gained, 0 where nobody could see it in the numbers; and quote the numbers."""
    before, after = run.score("raw", "map_at_r"), run.score("test", "map_at_r")
    if before is None or after is None or abs(after - before) < LEAST_CHANGE:
        return 0.0, ""
    return after - before, f"MAP@R {100 * before:.1f} -> {100 * after:.1f}"


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
