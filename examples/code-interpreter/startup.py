# Runs in every Python kernel at its start: gives data frames and figures the representations that the
# SDKs call data and chart. Neither pandas nor matplotlib is imported before the user's code does.
def _dsec_startup():
    import sys

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    sys.path.append("/opt/code-interpreter")

    class Data(BaseFormatter):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")
        _return_type = dict

        def __call__(self, obj):
            if type(obj).__name__ != "DataFrame" or type(obj).__module__.split(".")[0] != "pandas":
                return super().__call__(obj)
            import json

            return {str(c): json.loads(obj[c].to_json(orient="values", date_format="iso")) for c in obj.columns}

    class Chart(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")
        _return_type = dict

        # Not by a registered printer: matplotlib's back end takes those for figures away.
        def __call__(self, obj):
            if type(obj).__name__ != "Figure" or type(obj).__module__ != "matplotlib.figure":
                return super().__call__(obj)
            from charts import chart

            try:
                return chart(obj)
            except Exception:
                return None  # a figure that cannot be read as a chart is still an image

    display = get_ipython().display_formatter
    display.formatters["e2b/data"] = Data(parent=display)
    display.formatters["e2b/chart"] = Chart(parent=display)


_dsec_startup()
del _dsec_startup
