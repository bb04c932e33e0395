"""Scripts that run as they are, each on its own; the stored studies of ``reproductions`` use their functions."""
