"""What runs in a worker process? Loops that read, replay, run steps, promote timers and reclaim."""
