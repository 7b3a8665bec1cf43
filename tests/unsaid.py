"""A search for CUDA in converted code that knows nothing of torchport: what is neither found nor proved is silent."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from torchport.convert.residue import Meaning
from torchport.convert.workers import Converted

_CUDA = re.compile(r"cuda|nccl|nvidia|cudnn|cublas|nvcc|nvtx", re.IGNORECASE)


def silent(one: Converted) -> list[str]:
    """Each "file:line word" of a converted Python file of which its conversion says nothing: no finding in its line,
    and no proof that the name is the project's own. A file that could not be read is said to be so."""
    if any(finding.code.startswith("TP90") for finding in one.findings) or not one.name.endswith(".py"):
        return []
    known = {
        mention.line
        for mention in one.residue
        if mention.proof or mention.meaning in (Meaning.BLOCKER, Meaning.DECISION, Meaning.KEPT)
    }
    data = one.output if one.changed else one.path.read_bytes()
    return [f"{one.name}:{line} {word}" for line, word in _words(data) if line not in known]


def _words(data: bytes) -> Iterator[tuple[int, str]]:
    """The names and one-word texts that say CUDA, with their lines."""
    if _CUDA.search(data.decode("latin-1")) is None:  # nearly all files; tokenize takes as long as converting them
        return
    before = tokenize.NEWLINE
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            alone = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
            word = token.type == tokenize.STRING and len(token.string.split()) == 1 and not alone
            if (token.type == tokenize.NAME or word) and _CUDA.search(token.string):
                yield token.start[0], token.string
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before = token.type
    except (tokenize.TokenError, SyntaxError):
        return
