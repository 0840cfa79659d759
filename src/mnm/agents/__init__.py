"""One file per algorithm: a frozen state, a pure `update`, and the settings beside it."""
