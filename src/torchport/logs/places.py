"""Where in a run a line of its log was printed: the epoch and step in its text."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The epoch and step that a text prints, and the text without them. `within`: the step counts within the epoch.
    `bar`: they are of a progress bar. `mode` is "train", "val" or "test" if the line says so beside them."""

    rest: str
    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    within: bool = False
    bar: bool = False
    mode: str = ""


_MODES = r"train(?:ing)?|test(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?"
_PERCENT = r"(?:\s*\(\s*[\d.]+\s*%\s*\))?"
# mmengine `Epoch(train) [1][50/500]`, mmcv `Epoch [1][50/500]`, pytorch/examples `Epoch: [0][ 10/500]`, Swin
# `Train: [0/300][10/500]`, `Epoch [1/10]`, `Iter(train) [50/1000]`, `Test: [10/100]`, MindFormers
# `Epoch:[ 1/ 2], step:[ 2/ 100]`.
_BRACKETS = re.compile(
    rf"\b(?P<word>epochs?|iter(?:ation)?s?|steps?|{_MODES})\s{{0,3}}(?:\((?P<mode>\w{{1,10}})\))?\s{{0,3}}:?\s{{0,6}}"
    rf"\[\s{{0,8}}(?P<a>\d{{1,12}})\s{{0,3}}(?:/\s{{0,8}}(?P<b>\d{{1,12}}))?{_PERCENT}\s{{0,3}}\]"
    rf"(?:\s{{0,3}}\[\s{{0,8}}(?P<c>\d{{1,12}})\s{{0,3}}(?:/\s{{0,8}}(?P<d>\d{{1,12}}))?{_PERCENT}\s{{0,3}}\])?",
    re.IGNORECASE,
)
# pytorch/examples' mnist `Train Epoch: 1 [640/60000 (1%)]`, timm `Train: 0 [  50/1251 (  4%)]`, fairseq
# `epoch 001:  10 / 500`.
_EPOCH_OF = re.compile(
    rf"\b(?:(?P<mode>{_MODES})\s)?(?P<word>epoch|{_MODES})\s{{0,3}}[:=]?\s{{0,6}}(?P<a>\d{{1,9}})(?:\s{{0,3}}:)?"
    rf"(?:\s{{1,8}}\[?|\[)\s{{0,8}}(?P<c>\d{{1,12}})\s{{0,3}}/\s{{0,8}}(?P<d>\d{{1,12}}){_PERCENT}\s{{0,3}}\]?",
    re.IGNORECASE,
)
# tqdm: `Epoch 0:  40%|████      | 200/500 [00:10<00:15, 20.0it/s, loss=1.2]`.
_BAR = re.compile(
    r"\b\d{1,3}%\s{0,3}\|[^|]{0,400}\|\s{0,3}(?P<c>\d{1,12})/(?P<d>\d{1,12})\s{0,3}"
    r"\[[^,\]<]{0,30}(?:<[^,\]]{0,30})?(?:,\s{0,3}[\d.?]{1,12}\s?\w{1,10}/\w{1,10})?(?P<rest>[^\]]{0,2000})\]?"
)
# Keras: `500/500 [=====>....] - 3s 5ms/step - loss: 1.2`, and its newer bar of "━".
_KERAS = re.compile(r"^\s{0,8}(?P<c>\d{1,9})/(?P<d>\d{1,9})\s{1,3}(?:\[[=>. ]{3,80}\]|[━╸╺ ]{3,80})")
_PAIR = re.compile(r"^\s{0,8}\[\s{0,8}(?P<a>\d{1,9})\s{0,3},\s{0,8}(?P<c>\d{1,9})\s{0,3}\]")  # PyTorch's CIFAR tutorial
_TAIL = re.compile(r"\[\s{0,8}(?P<c>\d{1,12})\s{0,3}/\s{0,8}(?P<d>\d{1,12})\s{0,3}\]\s{0,8}$")  # PyTorch's quickstart
_STEP = re.compile(
    r"(?<![\w./-])(?P<word>(?:global|current|train|optimizer)?[ _]?(?:steps?|iter(?:ation)?s?|batch(?:[_ ]idx)?)|it|"
    r"num_updates)"
    r"\b['\"]?\s{0,3}(?:[:=#]\s{0,6}|no\.?\s)?[\[(]?\s{0,8}(?P<c>\d{1,3}(?:,\d{3})+|\d{1,12})"
    r"(?:\s{0,3}(?:/|of)\s{0,8}(?P<d>\d{1,12}))?[\])]?(?![\w.%]|:\d|,\d)",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"(?<![\w./-])(?:epochs?|ep)\b['\"]?\s{0,40}(?:[:=#]\s{0,6}|no\.?\s)?[\[(]?\s{0,8}(?P<a>\d{1,9}(?:\.\d{1,18})?)"
    r"(?:\s{0,3}(?:/|of)\s{0,8}(?P<b>\d{1,9}))?[\])]?(?![\w%]|:\d)",
    re.IGNORECASE,
)
# "Num Epochs = 3", "total steps: 500", "epochs=14": settings, no places.
_SETTING_BEFORE = re.compile(
    r"\b(?:num(?:ber of)?|total|max(?:imum)?|min|warm-?up|accumulation|optimi[sz]ation|per|save|logging|eval|every|"
    r"inner|local)[ _]$",
    re.IGNORECASE,
)
_WORD_BEFORE = re.compile(r"\w[ _]$")
_MODE_FIRST = re.compile(rf"^[\W\d_]{{0,40}}(?P<mode>{_MODES})\b(?!\s{{0,3}}[=]|[/_])", re.IGNORECASE)


def find_place(text: str) -> Found:
    """The epoch and step that the text prints, by the first of the forms above that fits."""
    if "%" in text and (bar := _BAR.search(text)):
        return _of_bar(text, bar)
    if "[" in text and (match := _BRACKETS.search(text)):
        return _of_brackets(text, match)
    if "/" in text and (match := _EPOCH_OF.search(text)):
        mode = _mode(match["mode"] or ("" if match["word"].lower() == "epoch" else match["word"]))
        rest = _without(text, match, "|")
        return Found(rest, int(match["c"]), int(match["d"]), int(match["a"]), within=True, mode=mode)
    if match := _KERAS.search(text):
        return Found(_without(text, match, "|"), int(match["c"]), int(match["d"]), within=True)
    if match := _PAIR.search(text):
        return Found(_without(text, match, "|"), int(match["c"]), None, int(match["a"]), within=True)
    return _of_words(text)


def mode_of(text: str) -> str:
    """ "val" or "test" if that is the first word of the text."""
    match = _MODE_FIRST.match(text)
    return _mode(match["mode"]) if match else ""


def _mode(word: str | None) -> str:
    first = (word or "").lower()[:2]
    return {"tr": "train", "te": "test", "va": "val", "ev": "eval"}.get(first, "")


def _of_bar(text: str, bar: re.Match[str]) -> Found:
    before = text[max(0, bar.start() - 80) : bar.start()]
    inner = _of_words(before)
    rest = f"{bar['rest']} | {text[bar.end() :]}"
    return Found(
        rest,
        int(bar["c"]),
        int(bar["d"]),
        inner.epoch,
        inner.epochs,
        within=inner.epoch is not None,
        bar=True,
        mode=mode_of(before),
    )


def _of_brackets(text: str, match: re.Match[str]) -> Found:
    word, a, b = match["word"].lower(), int(match["a"]), int(match["b"]) if match["b"] else None
    mode = _mode(match["mode"] or (word if word[:2] in ("tr", "te", "va", "ev") else ""))
    rest = _without(text, match, "|")
    if match["c"] is not None:
        return Found(rest, int(match["c"]), int(match["d"]) if match["d"] else None, a, b, within=True, mode=mode)
    if word.startswith("epoch") and (b is None or mode not in ("test", "val")):
        later = _of_words(rest)
        inner = _BRACKETS.search(rest)
        if inner and inner["word"].lower()[:4] in ("step", "iter") and inner["c"] is None:
            total = int(inner["b"]) if inner["b"] else None
            return Found(_without(rest, inner, "|"), int(inner["a"]), total, a, b, within=True, mode=mode)
        return Found(later.rest, later.step, later.total, a, b, within=True, mode=mode)
    if b is None and word[:2] in ("tr", "te", "va", "ev"):
        return _of_words(text)  # a list of one number
    return Found(rest, a, b, mode=mode)


def _of_words(text: str) -> Found:
    step, epoch = _first_place(_STEP, text), _first_place(_EPOCH, text)
    rest = text
    for match in sorted((m for m in (step, epoch) if m), key=lambda m: -m.start()):
        rest = _without(rest, match, "")
    tail = _TAIL.search(rest) if step is None else None
    if tail:
        rest = _without(rest, tail, "")
    counted = step or tail
    return Found(
        rest,
        int(counted["c"].replace(",", "")) if counted else None,
        int(counted["d"]) if counted and counted["d"] else None,
        float(epoch["a"]) if epoch else None,
        int(epoch["b"]) if epoch and epoch["b"] else None,
        # "global step 700" of epoch 2 is one of the run; "step 700" may be either, and only its total can tell.
        within=epoch is not None and "." not in epoch["a"] and not (step and "global" in step["word"].lower()),
    )


def _first_place(form: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next((match for match in form.finditer(text) if not _is_setting(match, text)), None)


def _is_setting(match: re.Match[str], text: str) -> bool:
    before = text[max(0, match.start() - 20) : match.start()]
    if _SETTING_BEFORE.search(before):
        return True
    word, _, value = match.group().partition("=")
    plural = word.split(":")[0].strip().rstrip("'\"").lower().endswith(("steps", "epochs", "iters", "iterations"))
    return plural and (bool(value) or _WORD_BEFORE.search(before) is not None)


def _without(text: str, match: re.Match[str], between: str) -> str:
    return f"{text[: match.start()]}{between}{text[match.end() :]}"
