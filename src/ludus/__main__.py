"""`python -m ludus` is the `ludus` command."""

from ludus.cli import main

if __name__ == "__main__":
    main()
