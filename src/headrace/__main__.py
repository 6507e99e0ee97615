"""`python -m headrace`: the `headrace` command, for those who start it by an interpreter of their choice."""

from headrace.cli.main import main

if __name__ == "__main__":
    main()
