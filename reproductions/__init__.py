"""The papers' tables and figures: studies that are run, stored and shown. Try ``python -m reproductions --help``."""
