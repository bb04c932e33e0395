"""The papers' tables and figures: studies that are run, stored and shown. See ``slimbayes reproduce``."""
