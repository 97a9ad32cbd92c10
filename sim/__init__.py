"""A discrete-event simulator of LLM serving with speculative decoding."""
