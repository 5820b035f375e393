"""``python -m thalweg``."""

from thalweg.main import main

main()
