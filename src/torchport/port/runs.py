"""The two recorded runs of a port: the original on the CPU, the converted script on the NPU.

The command is run as the user gave it, each time in a view of the user's folder; in the port's view the converted files
are in the places of the originals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torchport import startup, vnpu
from torchport.compare import conditions
from torchport.findings import Finding, Location, Safety, Severity
from torchport.launch import keeper, notebook
from torchport.port import surroundings
from torchport.port.configurations import list_unconverted
from torchport.port.plan import CONVERT, NPU, REFERENCE, RESULT, Plan, step_result
from torchport.port.progress import Progress
from torchport.port.told import list_renamed, rename_arguments, rename_variables
from torchport.port.view import View
from torchport.port.watch import Watch
from torchport.record import port_side, recording, reference, session
from torchport.record.recording import End, Recording
from torchport.record.states import EVERY
from torchport.record.writes import read_report
from torchport.results.port import RankCards, Run, UnconvertedModule
from torchport.source.project import is_installed_place

VIEW, FILES, LINES = "view", "files", "lines.json"
DEVICES = {REFERENCE: "cpu", NPU: "npu:0"}
ENOUGH = (50, 60.0)  # steps of every curve, and seconds, after which more say little
ABOVE = 3  # how many folders above the user's are there for `../data`
MOST_BESIDE = 500  # entries of such a folder
_LAST = 2000  # bytes of stderr: the error itself


def record_side(plan: Plan, step: str, aside: Path, progress: Progress) -> Run:
    """Run one side and leave its recording in the folder `aside`; the script's own failure is part of the
    recording."""
    with make_views(plan, step, aside) as views:
        watch = Watch(aside, plan.timeout, progress)
        recorded, ended = run_recorded(plan, step, aside, views, options_of(plan, step, aside, views), watch)
        data = Run(
            command=plan.command,
            status=ended.status,
            timed_out=ended.stopped == "timeout",
            ended=_ended(plan, step, recorded),
            seconds=ended.seconds,
            steps=recorded.steps,
            device=describe_run_device(step),
            ranks=len(recorded.trained),
            cards=_list_cards(recorded),
            files=tuple(row for view in views for row in view.list_written()),
            outside=tuple(_outside(recorded, views)),
            modules=tuple(_modules(recorded, views)),
            notes=(
                *(list_renamed(plan.launch.arguments, _inherit(plan)) if step == NPU else ()),
                *watch.notes,
                *dict.fromkeys(event["text"] for event in recorded.of_kind("note")),
            ),
        )
        for number, view in enumerate(views):
            view.keep_written(aside / name_view_folder(FILES, number))
            shutil.rmtree(aside / f"{VIEW}-{number + 1}")
        for name in (recording.STDOUT, recording.STDERR):
            text = (aside / name).read_text("utf-8", "replace")
            (aside / name).write_text(restore_original_paths(views, text), "utf-8")
        (aside / "paths.json").write_text(json.dumps({str(view.place): str(view.folder) for view in views}))
        step_result(step, plan, data).write(aside / RESULT)
    return data


def run_recorded(
    plan: Plan,
    step: str,
    aside: Path,
    views: list[View],
    options: session.Options,
    watch: Callable[[float], str],
    threads: str = "",
) -> tuple[Recording, keeper.Ended]:
    """Run the command once; its recording, ended, and how it ended."""
    command = plan.launch.command
    recording.begin_recording(aside, side=options.side, command=command, device=DEVICES[step], seed=options.seed)
    environment = _environment(plan, step, views, options)
    ended = keeper.run_with_keeper(
        _command(plan, step, views),
        environment | ({"OMP_NUM_THREADS": threads} if threads else {}),
        _inside(views, plan.folder),
        aside / recording.STDOUT,
        aside / recording.STDERR,
        watch,
    )
    path, line = _where(aside) if ended.stopped == "timeout" else ("", 0)
    End(ended.status, ended.seconds, ended.stopped, plan.timeout or 0, path, line).write_to(aside)
    return Recording.from_directory(aside), ended


def original_places(findings: tuple[Finding, ...], *folders: Path) -> tuple[Finding, ...]:
    """The findings with the user's own paths for those of the views in which the runs of `folders` happened."""
    table: dict[str, str] = {}
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            table |= json.loads((folder / "paths.json").read_text())

    def moved(path: str) -> str:
        for place, folder in table.items():
            if path == place or path.startswith(place + os.sep):
                return folder + path[len(place) :]
        return path

    def replaced(finding: Finding) -> Finding:
        place = finding.location
        if place is None:
            return finding
        path = moved(place.path)
        where = Path(path)
        shown = str(where.relative_to(Path.cwd())) if where.is_relative_to(Path.cwd()) else path
        return dataclasses.replace(
            finding, location=Location(shown, place.line, place.column, place.end_line, place.end_column)
        )

    return tuple(map(replaced, findings))


def name_view_folder(name: str, number: int) -> str:
    """The folder for the view with that number, below that of a step."""
    return name if number == 0 else f"{name}-{number + 1}"


def describe_run_device(step: str) -> str:
    """What a run is said to have run on."""
    if step == REFERENCE:
        return "the CPU"
    return f"{DEVICES[step]} ({'virtual' if vnpu.detect().kind is vnpu.Kind.VNPU else 'hardware'})"


def count_ranks(plan: Plan) -> int:
    """The ranks of one job that the reference had; 1 without a job."""
    recorded = Recording.from_directory(plan.kept_in(REFERENCE))
    return max(1, len({process.rank for process in recorded.trained} - {None}))


def restore_original_paths(views: list[View], text: str) -> str:
    """`text` with the user's own paths for those of the views."""
    for view in views:
        text = view.restore_paths(text)
    return text


@contextlib.contextmanager
def make_views(plan: Plan, step: str, aside: Path) -> Iterator[list[View]]:
    """The folders that the run sees, the current one first; gone when it is left, but for what was kept."""
    views = []
    for number, folder in enumerate(plan.list_viewed_folders()):
        place = _surrounded(folder, aside / f"{VIEW}-{number + 1}", plan.out)
        tree = plan.kept_in(CONVERT) / name_view_folder("tree", number)
        replace = {} if step == REFERENCE else dict(_converted(tree))
        if plan.script is not None and plan.script.is_relative_to(_out(plan)) and step == REFERENCE:
            replace[plan.script.relative_to(folder)] = plan.script  # from stdin; kept where no view looks
        views.append(View.from_folder(folder, place, _out(plan), replace, real=_kept_real(plan, folder)))
    yield views


def _kept_real(plan: Plan, folder: Path) -> list[Path]:
    """What must not be a link: where the script is and where the command is given."""
    paths = [plan.folder.resolve(), *([plan.script] if plan.script is not None else [])]
    return [path.relative_to(folder) for path in paths if path.is_relative_to(folder) and path != folder]


def _converted(tree: Path) -> Iterator[tuple[Path, Path]]:
    for path in sorted(tree.rglob("*")):
        relative = path.relative_to(tree)
        if (
            path.is_file()
            and not path.is_symlink()
            and not any(part.startswith(".torchport") for part in relative.parts)
        ):
            yield relative, path


def _surrounded(folder: Path, top: Path, out: Path) -> Path:
    """Where the view of `folder` goes: below folders that have, as links, what lies beside `folder` and above it, so
    that `../data` leads where it did."""
    above = [parent for parent in list(folder.parents)[:ABOVE] if parent != Path(parent.anchor)]
    place = top
    place.mkdir()
    for parent, below in zip(reversed(above), [*reversed(above[:-1]), folder], strict=False):
        beside = []
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            beside = [entry for _, entry in zip(range(MOST_BESIDE), entries, strict=False)]
        for entry in beside:
            path = Path(entry.path)
            if path != below and not out.resolve().is_relative_to(path.resolve()):
                (place / entry.name).symlink_to(path.absolute(), target_is_directory=entry.is_dir())
        place = place / below.name
        if below != folder:
            place.mkdir()
    return place if above else top / folder.name


def _out(plan: Plan) -> Path:
    """What no view shows: the output folder, with those of other ports beside it."""
    return next((parent for parent in (plan.out, *plan.out.parents) if parent.name == "torchport-out"), plan.out)


def _inside(views: list[View], path: Path) -> Path:
    for view in views:
        found = view.map_into_view(Path(os.path.abspath(path)))
        if found.is_relative_to(view.place):
            return found
    return path


def options_of(plan: Plan, step: str, aside: Path, views: list[View]) -> session.Options:
    """What a run of one side records in `aside`."""
    weights = recording.WEIGHTS
    common = session.Options(str(aside), views={str(view.folder): str(view.place) for view in views})
    if step == REFERENCE:
        return dataclasses.replace(
            common,
            side=session.REFERENCE,
            save=str(aside / weights),
            states_out=str(aside / recording.STATES),
            states_every=EVERY,
            steps=plan.steps,
            enough=None if plan.steps else ENOUGH,
        )
    (aside / LINES).write_text(json.dumps(_lines(plan)))
    reference = Recording.from_directory(plan.kept_in(REFERENCE))
    return dataclasses.replace(
        common,
        side=session.PORT,
        load=str(plan.kept_in(REFERENCE) / weights),
        states_in=find_kept(plan, recording.STATES),
        batches=find_kept(plan, recording.BATCHES),
        steps=steps_of(reference),
        kind=reference.trained[0].step_kind,
        lines=str(aside / LINES),
    )


def find_kept(plan: Plan, name: str) -> str:
    """The folder of that name in the reference's recording, such as that of its states; "" if it has none."""
    folder = plan.kept_in(REFERENCE) / name
    return str(folder) if folder.is_dir() else ""


def steps_of(reference: Recording) -> int:
    """How many steps the port is to do at most: as many as the reference where that was ended; a port that runs away is
    ended, too."""
    told = [int(event["steps"]) for event in reference.of_kind("stop")]
    return min(told) if told else reference.steps if reference.stopped else 2 * reference.steps + 10


def _lines(plan: Plan) -> dict[str, list[int]]:
    """For each converted file, the line of the original that each of its lines comes from.

    Cells of a notebook are files of their own, as they are in tracebacks.
    """
    found = {}
    for number in range(len(plan.list_viewed_folders())):
        source, tree = (plan.kept_in(CONVERT) / name_view_folder(name, number) for name in ("source", "tree"))
        for relative, path in _converted(tree):
            original = source / relative
            if not original.is_file():
                continue
            for name, before, after in _texts(str(relative), original.read_bytes(), path.read_bytes()):
                if before != after:
                    found[name] = _origin(before.splitlines(), after.splitlines())
    return found


def _texts(name: str, before: bytes, after: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    if name.endswith(".py"):
        yield name, before, after
    elif name.endswith(".ipynb"):
        for theirs, ours in zip(notebook.read_code_cells(before), notebook.read_code_cells(after), strict=False):
            yield f"{name}, cell {theirs.number}", theirs.code.encode(), ours.code.encode()


def _origin(before: list[bytes], after: list[bytes]) -> list[int]:
    """The line of `before`, from 1, that each line of `after` comes from."""
    origin = [0] * len(after)
    # A line that differs in a device's name only is the same line.
    theirs, ours = (
        [re.sub(rb"cuda|npu|nccl|hccl", b"", line, flags=re.I) for line in lines] for lines in (before, after)
    )
    for kind, low, high, start, end in difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
        for line in range(start, end):
            # Lines are added before what needs them, so unequal blocks end together.
            origin[line] = (low if kind == "insert" else max(low, high - (end - line))) + 1
    return origin


def _command(plan: Plan, step: str, views: list[View]) -> list[str]:
    """The command, with places of the views for the script where it is not given relative to the current folder, and
    with the NPU's device names for the port."""
    script = plan.launch.script
    words = list(plan.launch.command)
    if step == NPU:
        first = len(words) - len(plan.launch.arguments)
        words[first:] = [_converted_word(plan, word, views) for word in rename_arguments(words[first:])]
    if script is not None and (script.is_absolute() or not _below(plan.folder, script)):
        words = [str(_inside(views, plan.folder / word)) if word == str(script) else word for word in words]
    return words


def _converted_word(plan: Plan, word: str, views: list[View]) -> str:
    """An argument, `--config=/home/me/base.yaml` say, with the place in the view for a file that was converted."""
    before, equals, path = word.rpartition("=")
    if not os.path.isabs(path):
        return word
    for number, folder in enumerate(plan.list_viewed_folders()):
        tree = plan.kept_in(CONVERT) / name_view_folder("tree", number)
        if Path(path).is_relative_to(folder):
            kept = tree / Path(path).relative_to(folder)
            if kept.is_file() and not kept.is_symlink():
                return f"{before}{equals}{_inside(views, Path(path))}"
    return word


def _below(folder: Path, path: Path) -> bool:
    return Path(os.path.abspath(folder / path)).is_relative_to(os.path.abspath(folder))


def _environment(plan: Plan, step: str, views: list[View], options: session.Options) -> dict[str, str]:
    inherited = _inherit(plan)
    if step == REFERENCE:
        environment = dict(reference.make_reference_environment(inherited, plan.launch.processes or 1))
    else:
        # As many NPUs as the reference shows GPUs, so that scripts which ask how many there are do the same; as many as
        # it had ranks, where the script or a shell loop started them.
        inherited |= rename_variables(inherited)
        inherited = port_side.make_port_environment(inherited, max(plan.launch.processes, count_ranks(plan)))
        environment = {**inherited, **vnpu.environment(inherited), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
        if plan.sum_order is not None:
            environment[vnpu.SUM_ORDER] = str(plan.sum_order)
    environment |= surroundings.build_run_environment(environment, views[0].place)
    # Of an installed package its view is in the place of the folder that it is installed in.
    installed = {view.folder.parent: view.place.parent for view in views if is_installed_place(view.folder.parent)}
    entries = [Path(os.path.abspath(plan.folder / entry)) for entry in plan.path]
    path = [str(installed.get(entry.resolve()) or _inside(views, entry)) for entry in entries]
    path += [str(place) for place in installed.values() if str(place) not in path]
    return {
        **environment,
        "PWD": str(_inside(views, plan.folder)),
        "PYTHONPATH": os.pathsep.join([startup.FOLDER, *path]),
        "TORCHPORT_AUTO": "0",
        session.VARIABLE: options.to_variable(),
    }


def _inherit(plan: Plan) -> dict[str, str]:
    return {**os.environ, **dict(plan.launch.variables)}


def _ended(plan: Plan, step: str, recorded: Recording) -> str:
    """Why torchport ended a run. The port is given the steps of an original that had done enough, not those of the
    user's --steps."""
    given = step == NPU and plan.steps is None and recorded.stopped == "steps"
    return "enough" if given else recorded.stopped


def _list_cards(recorded: Recording) -> tuple[RankCards, ...] | None:
    """The NPUs that several ranks opened, as their last word says; None for one rank, and where no NPU was opened."""
    # A process that ended before its first step has not told its rank; they are in order of it.
    ranks = [place if one.rank is None else one.rank for place, one in enumerate(recorded.trained)]
    found = [
        RankCards(rank, tuple(conditions.read_cards(one))) for rank, one in zip(ranks, recorded.trained, strict=True)
    ]
    return tuple(found) if len(found) > 1 and any(one.cards for one in found) else None


def _outside(recorded: Recording, views: list[View]) -> list[str]:
    opened = set(read_report(recorded.path / recording.OUTSIDE))
    changed = {path for view in views for path in view.changed_outside()}
    return sorted(path for path in opened | changed if not Path(path).is_relative_to(recorded.path.parent))


def _modules(recorded: Recording, views: list[View]) -> list[str]:
    """Files of the user's modules that the run imported, in the user's own paths."""
    found = {path for event in recorded.of_kind("modules") for path in event["files"]}
    return sorted({restore_original_paths(views, path) for path in found})


def _where(aside: Path) -> tuple[str, int]:
    """The innermost line of the user's in the main thread of the first process that trained, else of any."""
    recorded = Recording.from_directory(aside)
    order = [one.pid for one in (*recorded.trained, *recorded.processes)]
    for process in order:
        stacks = aside / recording.PROCESSES / str(process) / recording.STACKS
        text = stacks.read_text(encoding="utf-8", errors="replace") if stacks.exists() else ""
        main = text.rpartition("Thread 0x")[2] or text  # faulthandler writes the main thread last
        for path, line in re.findall(r'^  File "(.+)", line (\d+)', main, re.MULTILINE):
            if f"{os.sep}{VIEW}-" in path and "site-packages" not in path:
                return path, int(line)
    return "", 0


def unconverted_finding(rows: Sequence[UnconvertedModule]) -> Finding:
    """What is said of imported modules that were not converted."""
    first = rows[0]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return Finding(
        "TP347",
        Severity.WARNING,
        Safety.REPORT,
        Location(first.path, first.line, 1, first.line, 1),
        f"a module of yours that names CUDA was imported and not converted: {first.path}{more}",
        "torchport port PROJECT --main SCRIPT converts a whole folder; or install a converted copy of it.",
        {"files": [row.path for row in rows]},
    )


def report_configurations(plan: Plan, port: Run, converted: Sequence[str]) -> Iterator[Finding]:
    """A finding on the configuration files that were not converted, if the port failed and its last words name CUDA."""
    if port.skipped or port.status in (0, None) or plan.project is not None or plan.script is None:
        return
    words = (plan.kept_in(NPU) / recording.STDERR).read_text(errors="replace")[-_LAST:]
    if not re.search("cuda|nccl", words, re.IGNORECASE):
        return
    rows = list(list_unconverted(plan.root, {Path(path) for path in converted}, plan.out))
    if rows:
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        command = f"torchport port {shlex.quote(str(plan.root))} --main {shlex.quote(str(plan.script))}"
        yield Finding(
            "TP347",
            Severity.WARNING,
            Safety.REPORT,
            Location(rows[0].path, rows[0].line, 1, rows[0].line, 1),
            f"a configuration file that names CUDA was not converted: {rows[0].path}{more} ({rows[0].why})",
            f"If the script reads it: {command}, with the script's arguments behind, converts it too.",
            {"files": [row.path for row in rows]},
        )
