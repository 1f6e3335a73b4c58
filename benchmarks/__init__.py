"""How fast arcgrad is, next to OpenFst in the same process.

Run ``python -m benchmarks`` for every case, or name some: ``forward compose construct slope
second_order batch``. ``--quick`` runs everything at a small size to see that it works; its figures
mean nothing and are not judged. ``--json FILE`` also writes every figure with the machine, the
versions and the commit. OpenFst is reached through ``pywrapfst``, from the PyPI package ``pynini``.
"""
