"""Which constructs of asyncio and Python do people write in workflow bodies, and do all of them survive a crash?

``catalogue`` lists one small body per construct with what it must give. ``playing`` runs them on the real consumers
and lets the worker die before any of its script calls; ``prefixes`` replays their logs. Time is the pinned clock: a
step that takes long asks for a retry later, and a timer fires when nothing else is to do.
"""
