"""Reads from a matplotlib figure what it shows, as the SDKs describe charts."""

import re
from datetime import date

import numpy as np


def chart(figure):
    """Gives the figure's chart, a superchart if it has several, None if it has none."""
    found = [_axes(a) for a in figure.axes]
    found = [c for c in found if c]
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    title = figure._suptitle.get_text() if figure._suptitle else ""
    return {"type": "superchart", "title": title, "elements": found}


def _axes(ax):
    for read in (_pie, _box, _bar, _line, _scatter):
        if read is _pie:
            c = read(ax)
        else:
            c = read(ax, _frame(ax))
        if c:
            return {"title": ax.get_title(), **c}
    return None


def _frame(ax):
    """What all charts with two axes tell about them."""
    f = {}
    for n, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        label = axis.get_label_text()
        unit = re.search(r"\(([^()]+)\)\s*$", label)
        f[f"{n}_label"] = label or None
        f[f"{n}_unit"] = unit[1] if unit else None
    return f


def _ticks(ax):
    t = {}
    for n, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        scale = axis.get_scale()
        if "Date" in type(axis.get_major_formatter()).__name__:
            scale = "datetime"
        elif "Category" in type(axis.get_major_formatter()).__name__:
            scale = "categorical"
        t[f"{n}_scale"] = scale
        t[f"{n}_ticks"] = [_plain(v) for v in axis.get_ticklocs()]
        t[f"{n}_tick_labels"] = [x.get_text() for x in axis.get_ticklabels()]
    return t


def _plain(v):
    if isinstance(v, (np.datetime64, date)):
        return str(v)
    if isinstance(v, str):
        return v
    v = float(v)
    if not np.isfinite(v):
        return None
    return int(v) if v.is_integer() else v


def _name(artist, i):
    label = str(artist.get_label())
    return f"{i}" if label.startswith("_") else label


def _pie(ax):
    from matplotlib.patches import Wedge

    wedges = [p for p in ax.patches if isinstance(p, Wedge)]
    return wedges and {"type": "pie", "elements": [
        {"label": w.get_label(), "angle": float(w.theta2 - w.theta1), "radius": float(w.r)} for w in wedges]}


def _bar(ax, frame):
    from matplotlib.container import BarContainer

    bars = [c for c in ax.containers if isinstance(c, BarContainer)]
    if not bars:
        return None
    elements = []
    for i, group in enumerate(bars):
        upright = getattr(group, "orientation", "vertical") != "horizontal"
        axis = ax.xaxis if upright else ax.yaxis
        names = dict(zip((float(t) for t in axis.get_ticklocs()), (t.get_text() for t in axis.get_ticklabels())))
        for b in group.patches:
            at, size = (b.get_x() + b.get_width() / 2, b.get_height()) if upright else (b.get_y() + b.get_height() / 2, b.get_width())
            elements.append({"label": names.get(round(at, 9)) or str(_plain(at)), "value": str(_plain(size)), "group": _name(group, i)})
    return {"type": "bar", **frame, "elements": elements}


def _box(ax, frame):
    """A box is a closed rectangle of five points; what belongs to it is drawn right after it."""
    lines = ax.get_lines()

    def is_box(line):
        x, y = line.get_xdata(), line.get_ydata()
        return len(x) == 5 and x[0] == x[4] and y[0] == y[4] and len(set(map(float, x))) == 2

    starts = [i for i, line in enumerate(lines) if is_box(line)]
    if not starts:
        return None
    labels = [t.get_text() for t in ax.get_xticklabels()]
    elements = []
    for n, i in enumerate(starts):
        parts = lines[i + 1:starts[n + 1] if n + 1 < len(starts) else len(lines)]
        low, high = (float(f(lines[i].get_ydata())) for f in (min, max))
        flat = [line for line in parts if len(line.get_ydata()) == 2 and line.get_ydata()[0] == line.get_ydata()[1] and line.get_linestyle() != "None"]
        inside = [float(line.get_ydata()[0]) for line in flat if low <= line.get_ydata()[0] <= high]
        ends = [float(v) for line in parts if len(line.get_ydata()) == 2 and line.get_linestyle() != "None" for v in line.get_ydata()]
        outliers = [_plain(v) for line in parts if line.get_linestyle() == "None" for v in line.get_ydata()]
        elements.append({"label": labels[n] if n < len(labels) else str(n), "min": min([low, *ends]), "first_quartile": low, "median": inside[-1] if inside else (low + high) / 2,
                         "third_quartile": high, "max": max([high, *ends]), "outliers": outliers})
    return {"type": "box_and_whisker", **frame, "elements": elements}


def _points(x, y):
    return [[_plain(a), _plain(b)] for a, b in zip(np.asarray(x).tolist(), np.asarray(y).tolist())]


def _line(ax, frame):
    lines = ax.get_lines()
    return lines and {"type": "line", **frame, **_ticks(ax), "elements": [
        {"label": _name(line, i), "points": _points(line.get_xdata(), line.get_ydata())} for i, line in enumerate(lines)]} or None


def _scatter(ax, frame):
    from matplotlib.collections import PathCollection

    clouds = [c for c in ax.collections if isinstance(c, PathCollection)]
    return clouds and {"type": "scatter", **frame, **_ticks(ax), "elements": [
        {"label": _name(c, i), "points": _points(*c.get_offsets().T)} for i, c in enumerate(clouds)]} or None
