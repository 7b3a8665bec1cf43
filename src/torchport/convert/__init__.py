"""Rewrite sources: the rules' edits spliced into the original bytes, checked, written, and taken back."""

from torchport.convert.output import list_edited_files
from torchport.convert.source import Conversion, convert_source
from torchport.convert.stages import Extras
from torchport.convert.tree import convert_tree, preview_tree
from torchport.convert.undo import undo_tree, write_tree

__all__ = [
    "Conversion",
    "Extras",
    "convert_source",
    "convert_tree",
    "list_edited_files",
    "preview_tree",
    "undo_tree",
    "write_tree",
]
