"""What ``mooncake`` means to a Python interpreter, and whether it suits the serving frameworks installed beside it.

The part of ``moonrail doctor`` that only the interpreter in question can answer. The command carries the text of these files and
runs it there, so they must not need more than the standard library of Python 3.8, nor import Moonrail, a framework or an
engine into their own process.
"""
