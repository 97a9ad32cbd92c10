"""What a server decides: batch, KV cache, scheduler, engine step. Shared with the live executor."""
