"""What a report shows of itself: in ``print``, and as the result of a notebook's cell."""

from html import escape

from instrumented_backend.records import Report
from instrumented_backend.views.text import render

HEIGHT = 720  # of the page in a notebook, in pixels


def text(report: Report) -> str:
    """The summary, as it is printed at exit."""
    return render(report, ("summary",))


def html(report: Report) -> str:
    """The page, in a frame of its own: neither its style nor its script touches the notebook."""
    # Here, because nobody else needs what draws pages.
    from instrumented_backend.views.page.page import render_page

    page = escape(render_page([report], frame=True), quote=True)
    return (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="The report of torch.compile" '
        f'style="width:100%;height:{HEIGHT}px;border:1px solid #8888;border-radius:8px"></iframe>'
    )


def install() -> None:
    """Records draw nothing by themselves."""
    Report.drawn_as_text = staticmethod(text)
    Report.drawn_as_html = staticmethod(html)
