"""The papers' tables and figures: studies that are run, stored and shown. ``python -m reproductions --help`` in a clone."""
