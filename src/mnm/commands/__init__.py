"""The commands, one file each; `mnm.cli` alone imports them."""
