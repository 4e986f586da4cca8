"""Whether graph calls are observed just now: one attribute to test on each call."""


class Gate:
    """``active`` while any of the meters wants to see the calls."""

    def __init__(self) -> None:
        self.active = False
        self._wanting: set[str] = set()

    def want(self, meter: str, wanted: bool) -> None:
        if wanted:
            self._wanting.add(meter)
        else:
            self._wanting.discard(meter)
        self.active = bool(self._wanting)
