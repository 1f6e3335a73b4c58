"""Benchmarks of arcgrad, with OpenFst and PyTorch in the same process.

Run ``python -m benchmarks`` for every case, or name some: ``forward compose construct slope growth
second_order batch trellis losses convolution ngram pieces decode small lattices``. ``--quick``
runs all at a small size as a smoke test; its figures are not judged. ``--cpu`` counts processor
time, for a machine that is busy with other work; judge on a quiet one. ``--json FILE``
also writes every figure with the machine, the versions and the commit. OpenFst is reached through
``pywrapfst``, from the PyPI package ``pynini``; the peer of ``trellis``, ``losses`` and
``convolution`` is ``torch``.
"""
