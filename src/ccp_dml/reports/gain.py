"""Say what training gained: over the raw backbone on the test half, and over the network's start on validation."""

from ccp_dml.records.run_folder import RunFolder, number


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
    if gain is None or name is None:
        return None
    before, after = run.score("raw", "precision_at_1"), run.score("test", "precision_at_1")
    assert before is not None
    assert after is not None
    numbers = f"P@1 {100 * before:.1f} -> {100 * after:.1f}"
    points = f"{abs(100 * gain):.1f} points"
    if points == "0.0 points":
        return f"Training changed nothing: {numbers} on unseen classes, as {name}."
    if gain > 0:
        return f"Training helped: {numbers} on unseen classes, {points} more than {name}."
    other_mode = ", or more classes" if run.config.get("model", {}).get("freeze_backbone") else ", or the mode frozen"
    ways = f"the advice given, a smaller optim.lr{other_mode}"
    raw_map, new_map = run.score("raw", "map_at_r"), run.score("test", "map_at_r")
    if raw_map is not None and new_map is not None and new_map > raw_map:
        return (
            f"Training helped and harmed: on unseen classes the nearest image is right less often ({numbers}, {points} "
            f"less than {name}), but all images of a class are nearer (MAP@R {100 * raw_map:.1f} -> "
            f"{100 * new_map:.1f}). To gain in both: {ways}."
        )
    return (
        f"Training did harm: {numbers} on unseen classes, {points} less than {name}. Use that as it is, or train it "
        f"in another way: {ways}."
    )


def progress_text(run: RunFolder) -> str | None:
    """Say what training gained on the validation classes since its start; None without a start or an evaluation."""
    first = run.start or (run.metrics[0] if run.metrics else {})
    best = run.best_evaluation() or {}
    before, after = number(first.get("map_at_r")), number(best.get("map_at_r"))
    if before is None or after is None or first["step"] == best["step"]:
        return None
    since = "before training" if first["step"] == 0 else f"at the first evaluation (step {first['step']:,})"
    return (
        f"On the validation classes MAP@R went from {100 * before:.1f} % {since} to {100 * after:.1f} % at the best "
        f"(step {best['step']:,}): {100 * (after - before):+.1f} points."
    )
