"""Lay out a clone of OpenCLIP in the current folder: its packages and the data of a tiny CLIP in src/."""

import csv
import importlib.util
import json
import shutil
from pathlib import Path

import numpy
from PIL import Image

SOURCE = Path("src")
IMAGES = 96
MODEL = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}
WORDS = ("red", "green", "small", "large", "house", "cat", "sky", "tree")

for package in ("open_clip", "open_clip_train"):
    place = Path(importlib.util.find_spec(package).origin).parent
    shutil.copytree(place, SOURCE / package, ignore=shutil.ignore_patterns("__pycache__"))
Path("pyproject.toml").write_text('[project]\nname = "open_clip_torch"\n')

# `--model local-dir:tiny` reads this file.
(SOURCE / "tiny").mkdir()
(SOURCE / "tiny" / "open_clip_config.json").write_text(json.dumps({"model_cfg": MODEL}))

(SOURCE / "images").mkdir()
numbers = numpy.random.default_rng(0)
with (SOURCE / "train.csv").open("w", newline="") as file:
    table = csv.writer(file, delimiter="\t")
    table.writerow(("filepath", "title"))
    for number in range(IMAGES):
        pixels = numbers.integers(0, 256, (40, 40, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(SOURCE / "images" / f"{number}.png")
        table.writerow((f"images/{number}.png", " ".join(["a", *numbers.choice(WORDS, 4)])))
