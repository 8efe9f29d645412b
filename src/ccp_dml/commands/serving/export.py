"""`ccp export`."""

from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import MovedFiles, TrustCode, err, out, take_termination_as_interrupt


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ccp train` wrote.")],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder for the model.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Also model.onnx, and model_uint8.onnx for images.")] = False,
    torch_program: Annotated[bool, typer.Option("--torch", help="Also model.pt2, a program of torch.export.")] = False,
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Images to check the export on; default: the run's own.")
    ] = None,
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a run's network with its preprocessing and a model card, for other machines and programs.

    What was written is loaded again and compared with the run; if anything differs, nothing is left behind.

    Examples:

    - `ccp export runs/birds --out birds-model`
    - `ccp export runs/birds --out birds-model --onnx --torch`
    - `ccp export runs/birds --out birds-model --images photos`
    """
    from ccp_dml.serving.exports.export import BATCHES, TOLERANCE, export_run

    take_termination_as_interrupt()  # or a kill would leave the scratch folder behind
    done = export_run(
        run,
        folder,
        onnx=onnx,
        torch_program=torch_program,
        images=images,
        settings=settings or [],
        trust_code=trust_code,
        report=lambda text: err.print(f"{text} ..."),
    )
    for name, difference in done.differences.items():
        out.print(
            f"{name}: same vectors as the run in batches of {', '.join(map(str, BATCHES))} "
            f"(largest difference {difference:.1g}, allowed {done.allowed:.1g})",
        )
    for name, rounded in done.rounded.items():
        out.print(
            f"{name}: {rounded.otherwise:,} of {rounded.features:,} features of the frozen backbone are rounded to the "
            f"other side than in the run, which moves {rounded.beyond} of {rounded.images} vectors by more than "
            f"{TOLERANCE:.0e}; made of the same features, vectors differ by {rounded.head:.1g}. A run with "
            "model.feature_precision=single has no such rounding.",
            soft_wrap=True,
        )
    out.print(f"Written: {folder} ({', '.join(done.files)})", soft_wrap=True)
    consent = ", trust_code=True" if any(name.startswith("own_code.") for name in done.files) else ""
    out.print(
        f'Next:    python -c "import ccp_dml; print(ccp_dml.load({str(folder)!r}{consent}).dim)"',
        soft_wrap=True,
    )
