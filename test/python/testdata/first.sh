# A new user's first minute: $WHEEL is the client, $HERE where first.py is.
python3 -m venv first
first/bin/pip install --quiet "$WHEEL"
first/bin/python "$HERE/first.py"
