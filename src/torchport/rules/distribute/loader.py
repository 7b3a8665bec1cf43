"""TP211: the training loader gets a DistributedSampler, no other loader does."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.script import BatchLoop, Script

_SAMPLER = "torch.utils.data.distributed.DistributedSampler"
_STARTED = "torch.distributed.is_initialized()"
_RANDOM_SPLITS = ("torch.utils.data.random_split", "torch.utils.data.dataset.random_split")
_SEEDS = ("torch.manual_seed", "torch.random.manual_seed")
_POSITIONS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler")


def training_loops(script: Script, loader: ast.Call) -> list[BatchLoop]:
    """The loops that train on a loader, where that is proven; none where a loop trains on some of its loaders only."""
    loops = [loop for loop in script.batch_loops if loader in loop.loaders and loop.trains]
    return loops if all(loop.always or _alone(script, loop) for loop in loops) else []


def _alone(script: Script, loop: BatchLoop) -> bool:
    """Whether a loop that trains under some condition trains on one loader, and in other calls on none."""
    others = [one for one in script.batch_loops if one.node is loop.node and one.loaders != loop.loaders]
    return len(loop.loaders) == 1 and not any(other.trains for other in others)


def check_script(script: Script) -> Iterator[Finding]:
    """A finding for every loader: its sampler, or why it has none."""
    if script.is_distributed:
        return
    for loader in script.loaders:
        loops = [loop for loop in script.batch_loops if loader in loop.loaders]
        if training_loops(script, loader):
            yield from _with_sampler(script, loader, shared=any(not loop.trains for loop in loops))
        elif not loops or any(loop.trains for loop in loops):
            why = "one loop trains on it and on others" if loops else "no loop of this file runs over it"
            yield RULE.make_finding(
                script,
                loader,
                f"whether this is the training loader is not proven: {why}",
                hint=f"If it is, give it sampler={_SAMPLER}(dataset) in place of shuffle=True, and call "
                "loader.sampler.set_epoch(epoch) in every epoch.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
    yield from _splits(script)
    if not script.loaders:
        yield RULE.make_finding(
            script,
            script.tree.body[0],
            "this file makes no torch DataLoader: how the data is shared out is open",
            hint="Let each process read its own part: index by torch.distributed.get_rank() and get_world_size().",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )


def _splits(script: Script) -> Iterator[Finding]:
    """Random splits that each process would draw for itself, so that one trains on what another evaluates."""
    calls = list(script.iter_nodes(ast.Call))
    if any(script.resolve_name(call.func) in _SEEDS for call in calls):
        return
    for call in calls:
        drawn = script.resolve_name(call.func) in _RANDOM_SPLITS and len(call.args) < 3
        if drawn and not any(keyword.arg in ("generator", None) for keyword in call.keywords):
            edit = script.append_argument(call, "generator=torch.Generator().manual_seed(0)")
            yield RULE.make_finding(
                script,
                call,
                "all processes split the data in the same way",
                [edit],
                safety=Safety.REVIEW,
                hint="Nothing of this file seeds torch; where another does, this is not needed.",
            )


def sampled_loaders(script: Script) -> list[ast.Call]:
    """The loaders that get a sampler."""
    return [loader for loader in script.loaders if training_loops(script, loader) and not _edits(script, loader)[1]]


def _with_sampler(script: Script, loader: ast.Call, shared: bool) -> Iterator[Finding]:
    given = _given(loader)
    edits, why = _edits(script, loader)
    if why:
        yield RULE.make_finding(
            script,
            loader,
            f"the training loader cannot be given a sampler here: {why}",
            hint=f"Give it sampler={_SAMPLER}(dataset) in place of its own order.",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
        return
    chosen = bool(_other_calls(script, loader))
    review = shared or chosen or any(keyword.arg is None for keyword in loader.keywords)
    yield RULE.make_finding(
        script,
        loader,
        "the training loader gives each process its own part of the data",
        edits,
        hint="This call makes other loaders, too: those that do not shuffle stay whole."
        if chosen
        else "A loop that does not train reads this loader, too, and sees a part only."
        if shared
        else "Check that the options hold no sampler."
        if review
        else "",
        safety=Safety.REVIEW if review else Safety.SAFE,
    )
    size = f"batch_size={script.get_source(given['batch_size'])}" if "batch_size" in given else "the batch size"
    yield RULE.make_finding(
        script,
        loader,
        f"{size} is now that of one process: N processes step on N times as many samples",
        hint="Divide it by N to train as before, or raise the learning rate with it (often in proportion, with a "
        "warm-up).",
        safety=Safety.REPORT,
    )


def _given(loader: ast.Call) -> dict[str, ast.expr]:
    """The arguments by name."""
    given: dict[str, ast.expr] = dict(zip(_POSITIONS, loader.args, strict=False))
    return given | {keyword.arg: keyword.value for keyword in loader.keywords if keyword.arg}


def _edits(script: Script, loader: ast.Call) -> tuple[list[Edit | None], str]:
    """The edits that put the sampler in, or why there are none."""
    given = _given(loader)
    unpacked = [keyword for keyword in loader.keywords if keyword.arg is None]
    dataset = given.get("dataset")
    for name in ("sampler", "batch_sampler"):
        value = given.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            return [], f"it has a {name} of its own"
    if dataset is None or any(isinstance(argument, ast.Starred) for argument in loader.args):
        return [], "its data set is not named in the call"
    if len(loader.args) > 3:
        return [], "its arguments have no names"
    if any(isinstance(above, ast.DictComp | ast.ListComp | ast.SetComp) for above in _inside(script, loader)):
        return [], "the same call makes others, too"
    if _is_iterable(script, dataset):
        return [], "an IterableDataset has no sampler; let each process read its own part"
    edits: list[Edit | None] = []
    text = script.get_source(dataset)
    if not isinstance(dataset, ast.Name | ast.Attribute):
        if dataset is not loader.args[0] or any(isinstance(part, ast.Yield | ast.Await) for part in ast.walk(dataset)):
            return [], "its data set has no name"
        start, _ = script.text.span(dataset)
        edits.append(Edit(start, start, b"train_data := "))
        text = "train_data"
    shuffle = given.get("shuffle")
    if unpacked:
        return edits + _through_options(script, unpacked, shuffle, text), _why_not(script, unpacked, shuffle)
    order = script.get_source(shuffle) if shuffle is not None else "False"
    sampler = f"sampler={_SAMPLER}({text}{'' if order == 'True' else f', shuffle={order}'})"
    if script.text.span(loader)[0] < script.borrowed:
        if script.names.scope_of(loader).is_module:
            return [], "it is made where its file is imported, before the processes have met"
        sampler += f" if {_STARTED} else None"
        if order != "False":
            sampler = f"shuffle={'' if order == 'True' else f'{order} and '}not {_STARTED}, {sampler}"
    if others := _other_calls(script, loader):
        if not _shuffles_to_train(script, loader, shuffle, others):
            return [], "the function that makes it makes others, too"
        sampler = f"sampler={_SAMPLER}({text}) if {order} else None"
    if shuffle is None:
        return [*edits, script.append_argument(loader, sampler)], ""
    keyword = next((one for one in loader.keywords if one.value is shuffle), None)
    start, end = script.text.span(keyword or shuffle)
    return [*edits, Edit(start, end, sampler.encode(script.text.encoding))], ""


def _other_calls(script: Script, loader: ast.Call) -> list[ast.Call]:
    """The calls of the function that makes the loader whose loader is not trained on."""
    _, calls = script.find_maker_calls(loader)
    trained = {call for loop in training_loops(script, loader) for one, call in loop.made if one is loader}
    return [call for call in calls if call not in trained]


def _shuffles_to_train(script: Script, loader: ast.Call, shuffle: ast.expr | None, others: list[ast.Call]) -> bool:
    """Whether `shuffle` is true for each loader that is trained on, and false for the `others`."""
    function, calls = script.find_maker_calls(loader)
    assert function is not None
    return len(others) < len(calls) and all(
        script.evaluate_expression(shuffle, script.bind_constants(call, function, {})) is (call not in others)
        for call in calls
    )


def _through_options(
    script: Script, unpacked: list[ast.keyword], shuffle: ast.expr | None, dataset: str
) -> list[Edit | None]:
    """`DataLoader(data, **options)`, where the options may hold shuffle=True, which a sampler excludes."""
    options = script.get_source(unpacked[0].value)
    order = f'{options}.get("shuffle", False)'
    new = f'{{**{options}, "shuffle": False, "sampler": {_SAMPLER}({dataset}, shuffle={order})}}'
    return [Edit(*script.text.span(unpacked[0].value), new.encode(script.text.encoding))]


def _why_not(script: Script, unpacked: list[ast.keyword], shuffle: ast.expr | None) -> str:
    plain = len(unpacked) == 1 and isinstance(unpacked[0].value, ast.Name | ast.Attribute)
    return "" if plain and shuffle is None else "its options come from more than one place"


def _inside(script: Script, loader: ast.Call) -> Iterator[ast.AST]:
    """The expressions around a call."""
    return itertools.takewhile(lambda above: isinstance(above, ast.expr), script.names.iter_ancestors(loader))


def _is_iterable(script: Script, dataset: ast.expr) -> bool:
    owner = script.classes.class_of(dataset)
    bases = [base for one in script.classes.iter_class_and_bases(owner) for base in one.bases] if owner else []
    return any((script.resolve_name(base) or "").endswith("IterableDataset") for base in bases)


_LOOP = "for x in loader:\n    loss(x).backward()\n    optimizer.step()\n"
_IMPORT = "from torch.utils.data import DataLoader\n"
_RUN = """\
def run(loader, optimizer=None):
    training = optimizer is not None
    for x in loader:
        if training:
            loss(x).backward()
            optimizer.step()
"""
_MOVED = """\
def moved(batches):
    for x in batches:
        yield x.cuda()
def run(batches, train):
    for x in moved(batches):
        if train:
            loss(x).backward()
            optimizer.step()
"""
_PHASES = """\
for phase in ['train', 'val']:
    for x in loaders[phase]:
        if phase == 'train':
            loss(x).backward()
            optimizer.step()
for x in loaders['val']:
    model(x)
"""
_CLASS = """\
class Trainer:
    def __init__(self):
        self.a, self.b = self.make()
    def train(self):
        for x in self.a:
            loss(x).backward()
            optimizer.step()
    def make(self):
"""
RULE = Rule(
    code="TP211",
    title="the training loader gets a DistributedSampler (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="Each process has to train on its own part of the data. A loader that is only evaluated stays whole, so that "
    "the metric stays what it was.",
    reference="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
    check=on_script(check_script),
    rewrites=(
        (
            f"{_IMPORT}loader = DataLoader(data, 8, shuffle=True)\n{_LOOP}",
            f"{_IMPORT}loader = DataLoader(data, 8, sampler={_SAMPLER}(data))\n{_LOOP}",
        ),
        (
            f"{_IMPORT}loader = DataLoader(data, batch_size=8,\n    num_workers=2,\n)\n{_LOOP}",
            f"{_IMPORT}loader = DataLoader(data, batch_size=8,\n    num_workers=2, "
            f"sampler={_SAMPLER}(data, shuffle=False),\n)\n{_LOOP}",
        ),
        (
            f"{_IMPORT}loader = DataLoader(MNIST('x'), shuffle=True)\n{_LOOP}",
            f"{_IMPORT}loader = DataLoader(train_data := MNIST('x'), sampler={_SAMPLER}(train_data))\n{_LOOP}",
        ),
        (
            "from torch.utils.data import random_split\na, b = random_split(data, [8, 2])\n",
            "from torch.utils.data import random_split\n"
            "a, b = random_split(data, [8, 2], generator=torch.Generator().manual_seed(0))\n",
        ),
        (
            f"{_IMPORT}loader = DataLoader(data, 8, True)\n{_LOOP}",
            f"{_IMPORT}loader = DataLoader(data, 8, sampler={_SAMPLER}(data))\n{_LOOP}",
        ),
        (
            f"{_IMPORT}loader = DataLoader(data, **options)\n{_LOOP}",
            f'{_IMPORT}loader = DataLoader(data, **{{**options, "shuffle": False, "sampler": {_SAMPLER}(data, '
            f'shuffle=options.get("shuffle", False))}})\n{_LOOP}',
        ),
        (
            f"{_IMPORT}def make():\n    a = DataLoader(d, shuffle=True)\n    b = DataLoader(e)\n    return a, b\n"
            "def train(loader):\n    for i, x in enumerate(loader):\n        step(x)\n"
            "def step(x):\n    loss(x).backward()\n    optimizer.step()\n"
            "def test(loader):\n    for x in loader:\n        model(x)\n"
            "first, second = make()\ntrain(first)\ntest(second)\n",
            f"{_IMPORT}def make():\n    a = DataLoader(d, sampler={_SAMPLER}(d))\n"
            "    b = DataLoader(e)\n    return a, b\n"
            "def train(loader):\n    for i, x in enumerate(loader):\n        step(x)\n"
            "def step(x):\n    loss(x).backward()\n    optimizer.step()\n"
            "def test(loader):\n    for x in loader:\n        model(x)\n"
            "first, second = make()\ntrain(first)\ntest(second)\n",
        ),
        (
            f"{_IMPORT}def make(data, train):\n    return DataLoader(data, shuffle=train)\n"
            f"loader = make(a, True)\n{_LOOP}for x in make(b, False):\n    model(x)\n",
            f"{_IMPORT}def make(data, train):\n"
            f"    return DataLoader(data, sampler={_SAMPLER}(data) if train else None)\n"
            f"loader = make(a, True)\n{_LOOP}for x in make(b, False):\n    model(x)\n",
        ),
        (
            f"{_IMPORT}{_MOVED}a, b = DataLoader(d, shuffle=True), DataLoader(e)\nrun(a, True)\nrun(b, False)\n",
            f"{_IMPORT}{_MOVED}a, b = DataLoader(d, sampler={_SAMPLER}(d)), DataLoader(e)\n"
            "run(a, True)\nrun(b, False)\n",
        ),
        (
            f"{_IMPORT}{_RUN}a, b = DataLoader(d, shuffle=True), DataLoader(e)\nrun(a, make())\nrun(b)\n",
            f"{_IMPORT}{_RUN}a, b = DataLoader(d, sampler={_SAMPLER}(d)), DataLoader(e)\nrun(a, make())\nrun(b)\n",
        ),
        (
            f"{_IMPORT}loaders = {{'train': DataLoader(d, shuffle=True), 'val': DataLoader(e)}}\n{_PHASES}",
            f"{_IMPORT}loaders = {{'train': DataLoader(d, sampler={_SAMPLER}(d)), 'val': DataLoader(e)}}\n{_PHASES}",
        ),
        (
            f"{_IMPORT}{_CLASS}        return DataLoader(d, shuffle=True), DataLoader(e)\n",
            f"{_IMPORT}{_CLASS}        return DataLoader(d, sampler={_SAMPLER}(d)), DataLoader(e)\n",
        ),
    ),
    reports=(
        f"{_IMPORT}loaders = {{'train': DataLoader(d, shuffle=True), 'val': DataLoader(e)}}\n"
        "for x in loaders['val']:\n    model(x)\n",
        f"{_IMPORT}{_RUN}a, b = DataLoader(d, shuffle=True), DataLoader(e)\nrun(a, make())\nrun(b, make())\n",
        f"{_IMPORT}loaders = {{x: DataLoader(sets[x], shuffle=True) for x in ['train', 'val']}}\n"
        "for phase in ['train', 'val']:\n    for x in loaders[phase]:\n        if phase == 'train':\n"
        "            loss(x).backward()\n            o.step()\n",
        f"{_IMPORT}def make(d):\n    return DataLoader(d, shuffle=True)\nloader = make(a)\n{_LOOP}test(make(b))\n",
        f"{_IMPORT}loader = DataLoader(data, sampler=mine)\n{_LOOP}",
        f"{_IMPORT}loader = DataLoader(data, shuffle=True)\n",
        f"{_IMPORT}loaders = {{'train': DataLoader(a), 'val': DataLoader(b)}}\nfor phase in loaders:\n"
        "    for x in loaders[phase]:\n        if phase == 'train':\n            loss(x).backward()\n"
        "            o.step()\n",
        "import torch\ntorch.manual_seed(1)\na, b = torch.utils.data.random_split(data, [8, 2])\n",
        "import torch\na, b = torch.utils.data.random_split(data, [8, 2], g)\n",
        f"from mine import DataLoader\nloader = DataLoader(data, shuffle=True)\n{_LOOP}",
        f"{_IMPORT}from torch.utils.data import IterableDataset\nclass S(IterableDataset):\n    pass\n"
        f"loader = DataLoader(S())\n{_LOOP}",
    ),
    ignores=(
        f"{_IMPORT}{_MOVED}a = DataLoader(d, shuffle=True)\nrun(a, False)\n",
        f"{_IMPORT}a = DataLoader(d, shuffle=True)\nn = sum(len(x) for x in a)\n",
        f"{_IMPORT}def step(x, train):\n    if train:\n        loss(x).backward()\n        optimizer.step()\n"
        "loader = DataLoader(data)\nfor x in loader:\n    step(x, False)\n",
        f"{_IMPORT}loader = DataLoader(data, shuffle=True)\nfor x in loader:\n    model(x)\n",
        f"{_IMPORT}loader = DataLoader(data, shuffle=True)\nfor x in loader:\n    loss(x).backward()\n",
    ),
)
