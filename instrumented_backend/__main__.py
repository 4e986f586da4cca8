"""``python -m instrumented_backend``: the same commands as ``instrumented-backend``."""

from instrumented_backend.commands import main

if __name__ == "__main__":
    main()
