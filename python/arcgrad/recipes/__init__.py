"""Data, networks and training for the experiments of the paper. Needs the extra ``[recipes]``.

Each folder is a room, and imports point one way only: ``metrics``, ``checked_files``,
``experiments`` <- ``data``, ``models`` <- ``recognizer`` <- ``run`` <- ``inference`` <-
``training`` <- ``report`` <- ``paper`` <- ``cli``.
"""
