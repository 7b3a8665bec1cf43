"""Python in launch scripts, Makefiles, workflows and images: edited between its quotes as in a Python file."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from torchport.convert import convert_source

SCRIPT = r"""#!/bin/bash
N="$(python3 -u -c "import torch; print(torch.cuda.device_count())")"
ssh host "python -c \"import torch; print(torch.cuda.is_available())\""
bash -c 'python -c "import torch; torch.zeros(1).cuda()"'
"$PYTHON" -c "import torch; torch.cuda.set_device($RANK); x = torch.ones(1, device='cuda:$RANK')"
python -c 'import torch; print("it'\''s", torch.cuda.device_count())'
python -c "
import torch
if torch.cuda.is_available():
    print('yes')
"
python -W ignore -c "import torch; \
  assert torch.cuda.is_available(), \
  'none'"
"""
CONVERTED = r"""#!/bin/bash
N="$(python3 -u -c "import torch; import torch_npu; print(torch.npu.device_count())")"
ssh host "python -c \"import torch; import torch_npu; print(torch.npu.is_available())\""
bash -c 'python -c "import torch; import torch_npu; torch.zeros(1).npu()"'
"$PYTHON" -c "import torch; import torch_npu; torch.npu.set_device($RANK); x = torch.ones(1, device='npu:$RANK')"
python -c 'import torch; import torch_npu; print("it'\''s", torch.npu.device_count())'
python -c "
import torch
import torch_npu
if torch.npu.is_available():
    print('yes')
"
python -W ignore -c "import torch; import torch_npu; \
  assert torch.npu.is_available(), \
  'none'"
"""
# The edits of a program's words when they are Python's.
NEW = (
    ("import torch; ", "import torch; import torch_npu; "),
    ("torch.cuda", "torch.npu"),
    (".cuda()", ".npu()"),
    ("cuda:$RANK", "npu:$RANK"),
    ("\nimport torch\n", "\nimport torch\nimport torch_npu\n"),
)


def convert(text: str, name: str) -> str:
    conversion = convert_source(text.encode(), name)
    assert "TP903" not in {finding.code for finding in conversion.findings}
    return conversion.output.decode()


def codes(text: str, name: str) -> set[str]:
    return {one.code for one in convert_source(text.encode(), name).findings if one.severity != "info"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", "python -c 'print(1)'\n"),
        ("run.sh", "# python -c 'import torch; torch.cuda.init()'\n"),
        ("run.sh", "python -c 'import cudaless'\n"),
        ("run.sh", "conda install -y python=3.10 pytorch -c nvidia-labs\n"),
        ("run.sh", "g++ -O2 -c cuda.c\nx=$((1 << 4))\n"),
        ("run.sh", "bash -c 'import -window root cuda.png'\n"),
        ("run.sh", "cat > notes.txt <<EOF\nimport the cuda tables\nEOF\n"),
        ("run.sh", 'grep -c "import torch.cuda" a.py\n'),
        ("c.yaml", "script: |\n  import cudf\n  cudf.read()\n"),
        ("Makefile", "x:\n\techo -c 'cuda'\n"),
    ],
)
def test_other_text_stays(name: str, text: str) -> None:
    assert convert(text, name) == text


def test_python_c_in_a_shell_script() -> None:
    assert convert(SCRIPT, "run.sh") == CONVERTED


def test_quotes_of_a_shell_script_hold() -> None:
    output = convert(SCRIPT, "run.sh")
    assert subprocess.run(["sh", "-n"], input=output, text=True, capture_output=True).returncode == 0
    for before, after in zip(SCRIPT.split("\npython")[1:], output.split("\npython")[1:], strict=True):
        words = shlex.split(before)
        for old, new in NEW:
            words = [word.replace(old, new) for word in words]
        assert shlex.split(after) == words


@pytest.mark.parametrize(
    ("start", "body"),
    [
        ("python - <<'EOF'", "import torch\nx = torch.ones(1).{0}()\n"),
        ('python3 - "$1" <<EOF', "import torch\nx = torch.ones($N).{0}()\nprint(f'\\$ {{x}}')\n"),
        ('cat > bench.py << "EOF"', "import torch\nx = torch.ones(1).to('{0}')\n"),
        ("cat <<EOF | python", "import torch\ntorch.{0}.synchronize()\n"),
        ("torchrun --nproc_per_node=2 /dev/stdin <<EOF", "import torch\ntorch.{0}.synchronize()\n"),
    ],
)
def test_here_documents(start: str, body: str) -> None:
    before = f"{start}\n{body.format('cuda')}EOF\nnvidia-smi\n"
    after = f"{start}\n{body.format('npu')}EOF\nnpu-smi info\n".replace(
        "import torch\n", "import torch\nimport torch_npu\n"
    )
    assert convert(before, "run.sh") == after


def test_here_document_with_tabs() -> None:
    before = "if true; then\n\tpython <<-EOF\n\timport torch\n\ttorch.cuda.init()\n\tEOF\nfi\n"
    after = "if true; then\n\tpython <<-EOF\n\timport torch\n\timport torch_npu\n\ttorch.npu.init()\n\tEOF\nfi\n"
    assert convert(before, "run.sh") == after


def test_here_document_of_a_shell_script_is_read_as_one() -> None:
    text = "cat > job.sh <<'EOF'\nexport CUDA_VISIBLE_DEVICES=0\npython -c 'import torch; torch.cuda.init()'\nEOF\n"
    output = convert(text, "run.sh")
    assert "ASCEND_RT_VISIBLE_DEVICES=0\npython -c 'import torch; import torch_npu; torch.npu.init()'" in output


def test_makefile() -> None:
    text = (
        'test:\n\t$(PY) -c "import torch; \\\n\t  assert torch.cuda.is_available()"\n'
        "\tX=$$(python -c \"import torch; print(torch.cuda.device_count(), '$(NAME)')\") && echo $$X\n"
    )
    after = text.replace("import torch;", "import torch; import torch_npu;").replace("torch.cuda", "torch.npu")
    assert convert(text, "Makefile") == after


def test_workflow() -> None:
    text = """jobs:
  a:
    steps:
      - run: python -c "import torch; assert torch.cuda.is_available()"
      - run: "python -c \\"import torch; torch.cuda.init()\\""
      - run: |
          nvidia-smi
          python - <<'EOF'
          import torch
          if True:
              torch.ones(1).cuda()
          EOF
          python -c "import torch
          torch.cuda.synchronize()
          print('${{ matrix.x }}')"
      - shell: python
        run: |
          import torch
          torch.cuda.init()
"""
    after = """jobs:
  a:
    steps:
      - run: python -c "import torch; import torch_npu; assert torch.npu.is_available()"
      - run: "python -c \\"import torch; import torch_npu; torch.npu.init()\\""
      - run: |
          npu-smi info
          python - <<'EOF'
          import torch
          import torch_npu
          if True:
              torch.ones(1).npu()
          EOF
          python -c "import torch
          import torch_npu
          torch.npu.synchronize()
          print('${{ matrix.x }}')"
      - shell: python
        run: |
          import torch
          import torch_npu
          torch.npu.init()
"""
    assert convert(text, ".github/workflows/a.yml") == after


def test_dockerfile() -> None:
    text = (
        "RUN python -c 'import torch; \\\n    assert torch.cuda.is_available()'\n"
        "RUN python3 <<EOF\nimport torch; torch.cuda.init()\nEOF\n"
        'CMD ["python", "-c", "import torch; torch.ones(1, device=\\"cuda\\")"]\n'
    )
    after = (
        "RUN python -c 'import torch; import torch_npu; \\\n    assert torch.npu.is_available()'\n"
        "RUN python3 <<EOF\nimport torch; import torch_npu; torch.npu.init()\nEOF\n"
        'CMD ["python", "-c", "import torch; import torch_npu; torch.ones(1, device=\\"npu\\")"]\n'
    )
    assert convert(text, "Dockerfile") == after


@pytest.mark.parametrize(
    "words", ['["python", "-c", "{0}"]', "\n  - python\n  - -c\n  - {0}", '\n  - python\n  - "-c"\n  - "{0}"']
)
def test_command_of_a_pod(words: str) -> None:
    text, after = (
        f"command: {words.format(code)}\n"
        for code in (
            "import torch; print(torch.cuda.device_count())",
            "import torch; import torch_npu; print(torch.npu.device_count())",
        )
    )
    assert convert(text, "pod.yaml") == after


def test_json() -> None:
    text = json.dumps({"postCreateCommand": 'python -c "import torch; print(torch.cuda.is_available())"'})
    command = json.loads(convert(text, "devcontainer.json"))["postCreateCommand"]
    assert command == 'python -c "import torch; import torch_npu; print(torch.npu.is_available())"'


def test_notebook_cell_for_a_shell() -> None:
    cell = {"cell_type": "code", "source": ["!python -c 'import torch; torch.cuda.init()'\n"], "outputs": []}
    output = json.loads(convert(json.dumps({"cells": [cell]}), "a.ipynb"))
    assert output["cells"][0]["source"] == ["!python -c 'import torch; import torch_npu; torch.npu.init()'\n"]


def test_an_edit_over_a_variable_is_a_finding() -> None:
    text = 'python -c "import torch; torch.$KIND.init(); x.cuda(); $WHAT(torch.cuda"\n'
    assert convert(text, "run.sh") == text
    assert "TP609" in codes(text, "run.sh")


def test_finding_tells_the_variable() -> None:
    text = "python -c \"import torch; x = torch.ones(1, device='cuda:$RANK')\"\n"
    assert any("'cuda:$RANK'" in one.message for one in convert_source(text.encode(), "run.sh").findings)


def test_ignored_line_stays() -> None:
    text = "python -c 'import torch; torch.cuda.init()'  # torchport: ignore\n"
    assert convert(text, "run.sh") == text


def test_lines_end_in_crlf() -> None:
    text = "python - <<EOF\r\nimport torch\r\ntorch.cuda.init()\r\nEOF\r\n"
    after = "python - <<EOF\r\nimport torch\r\nimport torch_npu\r\ntorch.npu.init()\r\nEOF\r\n"
    assert convert(text, "run.sh") == after
