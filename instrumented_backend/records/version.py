"""What a file is that cannot be read, and which version of the format can."""

SCHEMA_VERSION = 1


class ReportError(ValueError):
    """A file is not a report that we can read; the message is one line, with the path if given."""

    def __init__(self, problem: str, path: object = None) -> None:
        super().__init__(problem if path is None else f"{path}: {problem}")
        self.problem = problem
