"""Start msprof. torch_npu looks whether this file is there; what it runs is the program."""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    program = Path(__file__).resolve().parents[3] / "bin" / "msprof"
    sys.exit(subprocess.run([program, *sys.argv[1:]], check=False).returncode)
