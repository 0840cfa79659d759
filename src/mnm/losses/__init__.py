"""The deep algorithm's equations as pure functions of arrays, one per equation, without networks or state.

Nothing here stops a gradient by itself, except where the docstring says so: targets are computed outside of what is
differentiated.
"""
