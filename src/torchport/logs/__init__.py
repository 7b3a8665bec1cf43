"""The numbers that trainings print: read from any log (`reading`), and two logs of one training compared."""

from torchport.logs.reading import Printed, read_numbers

__all__ = ["Printed", "read_numbers"]
