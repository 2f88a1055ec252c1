"""Does a run come to its right end in *every* order of calls, and with a crash at every point?

An explicit-state model checker whose model is the real thing: the real scripts on a real Redis, the real replay
engine as the body. ``python -m tests.explorer`` prints what it has explored. ``explore`` is the search, ``actions``
what can happen, ``hands`` what a worker does with a delivery, ``store`` the server, ``checks`` what must hold,
``broken`` the fences whose absence it must notice.
"""
