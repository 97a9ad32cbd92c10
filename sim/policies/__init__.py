"""Length policies, one file each, and the caps beside them. Shared with the live executor."""
