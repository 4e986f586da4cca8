"""A page as a parser of HTML sees it."""

import html.parser


class Parsed(html.parser.HTMLParser):
    """Elements with their attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._skipped = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._skipped += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.text += data

    def values(self, name: str, **wanted: str) -> list[str]:
        """The attribute ``name`` of all elements that have it, and those that are ``wanted``."""
        return [
            value
            for _, attributes in self.elements
            if (value := attributes.get(name)) is not None
            and all(attributes.get(f"data-{key}") == like for key, like in wanted.items())
        ]
