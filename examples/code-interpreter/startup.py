# Runs in every Python kernel at its start: gives data frames and figures the representations that the
# SDKs call data and chart. Neither pandas nor matplotlib is imported before the user's code does.
def _dsec_startup():
    import sys

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    sys.path.insert(0, "/opt/code-interpreter")

    class Data(BaseFormatter):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")
        _return_type = dict

    class Chart(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")
        _return_type = dict

    def frame(df):
        import json

        return json.loads(df.to_json(orient="columns", date_format="iso")) and {
            str(c): json.loads(df[c].to_json(orient="values", date_format="iso")) for c in df.columns
        }

    def figure(fig):
        from charts import chart

        return chart(fig)

    display = get_ipython().display_formatter
    data, chart = Data(parent=display), Chart(parent=display)
    data.for_type_by_name("pandas", "DataFrame", frame)  # since pandas 3
    data.for_type_by_name("pandas.core.frame", "DataFrame", frame)
    chart.for_type_by_name("matplotlib.figure", "Figure", figure)
    display.formatters["e2b/data"] = data
    display.formatters["e2b/chart"] = chart


_dsec_startup()
del _dsec_startup
