"""What does redisworld cost? The workloads behind ``redisworld bench``, measured beside a floor of bare commands.

One file a workload; each gives ``Result`` values. ``docs/performance.md`` says what each of them means.
"""
