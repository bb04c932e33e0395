"""``python -m slimbayes``: the command, for ``torchrun -m slimbayes`` and the like."""

from slimbayes.cli import main

if __name__ == "__main__":
    main()
