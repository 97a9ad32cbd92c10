"""What a running vLLM tells its operator, read and turned into a profile and acceptance windows."""
