# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""The client, written once: ``dsec._sync`` is made of ``dsec._async``: do not edit."""
