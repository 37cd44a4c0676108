"""The client, written once: ``dsec._sync`` is made from this by ``scripts/unasync.py``."""
