"""The one error of rendering: a sentence for whoever edits the pages."""


class RenderError(Exception):
    """Pages cannot be rendered; says what is wrong and in which file."""
