"""`python -m minipd`: the same commands as the `minipd` script, for systems without it on PATH."""

from minipd.cli import main

if __name__ == "__main__":
    main()
