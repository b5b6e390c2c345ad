"""`python -m gramercy`."""

from gramercy.ui.cli.main import main

if __name__ == "__main__":
    main()
