"""`ccp doctor`."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, out, print_json
from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.machine import gigabytes, machine_memory, usable_cores

LITTLE_ROOM = 2e9  # bytes
OPTIONAL = (
    *("optuna", "tensorboard", "mlflow", "wandb", "faiss", "fastapi", "pymilvus", "onnxruntime", "dask"),
    *("matplotlib", "sklearn"),
)


@dataclass(frozen=True)
class Finding:
    """What one check found, in words."""

    subject: str
    text: str
    fine: bool = True


def doctor(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Runs whose files are compared with their checksums."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the installation, the machine and, if named, the files of runs.

    It looks at packages, devices, threads, memory, disk and downloaded weights, in a few seconds. It exits with 2 if
    something needs attention.

    Examples:

    - `ccp doctor`
    - `ccp doctor runs/first`
    - `ccp doctor --json`
    """
    checks = [versions, computing, memory, disk, features, weights]
    findings = [finding for check in checks for finding in examined(check.__name__, check)]
    for run in runs or []:
        findings += examined(str(run), partial(files_of, run))
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        for finding in findings:
            mark, style = ("ok", None) if finding.fine else ("!!", "yellow")
            out.print(f"{mark:<4}{finding.subject:<14}{finding.text}", style=style, soft_wrap=True)
    if wrong := [finding.subject for finding in findings if not finding.fine]:
        raise UserError(f"{len(wrong)} of {len(findings)} findings need attention: {', '.join(wrong)}.")


def examined(subject: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run one check; one that fails is a finding, too."""
    try:
        return check()
    except UserError as error:
        return [Finding(subject, str(error), fine=False)]
    except Exception as error:  # an examination must end
        return [Finding(subject, f"{type(error).__name__}: {error}", fine=False)]


def versions() -> list[Finding]:
    """Tell the versions of what is installed, and which extras are."""
    from importlib.util import find_spec

    from ccp_dml.foundation.environment import PACKAGES, installed

    found = {name: installed(name) for name in PACKAGES}
    missing = [name for name, version in found.items() if version is None]
    there = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    extras = ", ".join(name for name in OPTIONAL if find_spec(name)) or "none"
    return [
        Finding("installed", f"{there}" + (f"; missing: {', '.join(missing)}" if missing else ""), not missing),
        Finding("extras", extras),
    ]


def computing() -> list[Finding]:
    """Multiply on every device, and tell cores and threads."""
    import torch

    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    findings = []
    for device in devices:
        matrix = torch.ones(512, 512, device=device)
        began = perf_counter()
        total = float((matrix @ matrix).sum())
        right = total == 512.0**3
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        seconds = perf_counter() - began
        text = f"{name} multiplies {'right' if right else 'wrong'} ({seconds * 1000:.0f} ms)"
        findings.append(Finding("device", text, right))
    cores, threads = usable_cores(), torch.get_num_threads()
    remedy = f"; more threads than cores make torch slow: set OMP_NUM_THREADS={cores}" if threads > cores else ""
    text = f"{threads} threads on {cores} cores{remedy}"
    return [*findings, Finding("threads", text, threads <= cores)]


def memory() -> list[Finding]:
    """Tell the memory of the machine."""
    size = machine_memory()
    return [Finding("memory", "unknown" if size is None else gigabytes(size))]


def disk() -> list[Finding]:
    """Write to the current folder, to the cache and to the folder for temporary files, and tell the room there."""
    from ccp_dml.foundation.files import cache_home

    findings = []
    for name, folder in (("here", Path.cwd()), ("cache", cache_home()), ("temporary", Path(tempfile.gettempdir()))):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".ccp-doctor-"):
                free = shutil.disk_usage(folder).free
        except OSError as error:
            findings.append(Finding(name, f"{folder} cannot be written ({error.strerror})", fine=False))
            continue
        text = f"{folder} can be written, {gigabytes(free)} are free"
        findings.append(Finding(name, text, free > LITTLE_ROOM))
    return findings


def features() -> list[Finding]:
    """Look into the feature cache: its entries, and whether their headers can be read."""
    from ccp_dml.records.feature_store import FeatureStore

    entries = FeatureStore().entries()
    unreadable = [entry.key[:8] for entry in entries if entry.is_complete and not entry.description]
    text = f"{len(entries)} entries" + (f"; damaged: {', '.join(unreadable)}" if unreadable else "")
    return [Finding("feature cache", text, not unreadable)]


def weights() -> list[Finding]:
    """List pretrained weights that need no download."""
    import torch
    from huggingface_hub.constants import HF_HUB_CACHE  # where timm's downloads go

    models = sorted(path.name.removeprefix("models--") for path in Path(HF_HUB_CACHE).glob("models--*"))
    files = sorted(path.name for path in Path(torch.hub.get_dir()).glob("checkpoints/*"))
    return [Finding("weights", listing([*models, *files]) or "none at hand; model.pretrained=true downloads them")]


def files_of(run: Path) -> list[Finding]:
    """Compare all files of a run with their checksums."""
    from ccp_dml.foundation.seals import check_safetensors, check_torch_file
    from ccp_dml.records.documents import COVERED, refuse_changed_document
    from ccp_dml.records.layout import RESULT
    from ccp_dml.records.run_folder import RunFolder

    RunFolder.read(run)
    wrong, without, count = [], 0, 0
    for file in sorted([*run.glob("*.pt"), *run.rglob("*.safetensors")]):
        count += 1
        try:
            without += not (check_torch_file if file.suffix == ".pt" else check_safetensors)(file)
        except UserError as error:
            wrong.append(str(error))
    for name in (*COVERED, RESULT):
        if (run / name).is_file():
            count += 1
            refuse_changed_document(run / name)
    text = f"{count} files as they were written" + (f", {without} of them without checksums" if without else "")
    return [Finding(str(run), "; ".join(wrong) or text, not wrong)]
