"""Runs pieces of Python one after the other in one namespace, as a notebook does.

A request is a line of JSON on descriptor 3, and what becomes of it are lines of JSON on descriptor 4. What is
written to the descriptors 1 and 2 is output too; MARK on both says that a piece has ended.
"""

import ast
import asyncio
import base64
import builtins
import inspect
import io
import json
import linecache
import os
import re
import signal
import sys
import traceback

MARK = b"\0end\0"
FORMATS = {
    "html": "_repr_html_",
    "markdown": "_repr_markdown_",
    "svg": "_repr_svg_",
    "png": "_repr_png_",
    "jpeg": "_repr_jpeg_",
    "pdf": "_repr_pdf_",
    "latex": "_repr_latex_",
    "json": "_repr_json_",
    "javascript": "_repr_javascript_",
}
requests = os.fdopen(3, "r", encoding="utf-8")
answers = os.fdopen(4, "w", encoding="utf-8")
namespace = {"__name__": "__main__", "__builtins__": builtins}
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)


def tell(kind, **fields):
    answers.write(json.dumps({"type": kind, **fields}) + "\n")
    answers.flush()


class Output(io.TextIOBase):
    """Text as it is written, in its order with results."""

    def __init__(self, kind, number):
        self._kind = kind
        self._number = number

    def writable(self):
        return True

    def fileno(self):
        return self._number

    def write(self, text):
        if text:
            tell(self._kind, text=str(text))
        return len(text)


def formats_of(value):
    found = {"text": repr(value)}
    for name, method in FORMATS.items():
        made = getattr(value, method, None)
        if isinstance(value, type) or not callable(made):
            continue
        try:
            data = made()
        except Exception:
            continue
        data = data[0] if isinstance(data, tuple) else data
        if data is not None:
            found[name] = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    if type(value).__name__ == "DataFrame" and hasattr(value, "to_dict"):
        found["data"] = json.loads(json.dumps(value.to_dict(orient="list"), default=str))
    return found


def show(value, is_main=False):
    if type(value).__name__ == "Figure" and hasattr(value, "savefig"):
        return show_figure(value, is_main)
    return tell("result", is_main_result=is_main, **formats_of(value))


def show_figure(figure, is_main=False):
    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight")
    tell("result", is_main_result=is_main, text=repr(figure), png=base64.b64encode(picture.getvalue()).decode())


def show_figures(*_, **__):
    plot = sys.modules.get("matplotlib.pyplot")
    if plot is None:
        return
    plot.show = show_figures
    for number in plot.get_fignums():
        show_figure(plot.figure(number))
    plot.close("all")


def shell(command):
    import subprocess

    ended = subprocess.run(["/bin/bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    sys.stdout.write(ended.stdout.decode("utf-8", "replace"))


def python_of(code):
    """Lines that begin with `!` or `%pip` are for the shell."""
    return re.sub(
        r"^([ \t]*)(?:!|%(?=pip\b))(.+)$",
        lambda found: f"{found.group(1)}__shell__({found.group(2)!r})",
        code,
        flags=re.MULTILINE,
    )


def run(code, count):
    name = f"<cell {count}>"
    code = python_of(code)
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    evaluate(compile(tree, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    if last is None:
        return
    value = evaluate(compile(ast.Expression(last.value), name, "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    is_hidden = code.rstrip().endswith(";")
    if value is not None and not is_hidden:
        namespace["_"] = value
        show(value, is_main=True)


def evaluate(compiled):
    value = eval(compiled, namespace)
    return loop.run_until_complete(value) if inspect.iscoroutine(value) and compiled.co_flags & inspect.CO_COROUTINE else value


def answer(request, count):
    before = dict(os.environ)
    os.environ.update(request.get("env") or {})
    try:
        run(request["code"], count)
    except SystemExit as error:
        tell("error", name="SystemExit", value=str(error), traceback=f"SystemExit: {error}")
    except BaseException as error:
        # Without the frames of this file.
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        frames = [line for line in lines if __file__ not in line]
        tell("error", name=type(error).__name__, value=str(error), traceback="".join(frames))
    try:
        show_figures()
    except Exception as error:
        tell("error", name=type(error).__name__, value=str(error), traceback=traceback.format_exc())
    os.environ.clear()
    os.environ.update(before)


def main():
    sys.stdout, sys.stderr = Output("stdout", 1), Output("stderr", 2)
    sys.path.insert(0, "")
    namespace.update(display=show, __shell__=shell)
    builtins.display = show
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for count, line in enumerate(requests, 1):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            answer(json.loads(line), count)
        except KeyboardInterrupt:
            pass
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(1, MARK)
        os.write(2, MARK)
        tell("number_of_executions", execution_count=count)
        tell("done")


main()
