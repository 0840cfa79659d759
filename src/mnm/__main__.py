"""`python -m mnm`: the `mnm` command."""

from mnm.cli import main

main()
