# Additions to the generated stub: the generator leaves out names with double underscores.
_core.__suffix__:
    __version__: str
